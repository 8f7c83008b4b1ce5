-- Version 1. Told of in docs/lab.md.
CREATE TABLE experiment (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    origin      TEXT NOT NULL,
    plan        TEXT NOT NULL,
    facts       TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    finished_ms INTEGER
) STRICT;

CREATE TABLE subject (
    id            INTEGER PRIMARY KEY,
    experiment_id INTEGER NOT NULL REFERENCES experiment ON DELETE CASCADE,
    name          TEXT NOT NULL,
    kind          TEXT NOT NULL,
    params        TEXT NOT NULL,
    raw_bytes     INTEGER,
    usable_bytes  INTEGER,
    detail        TEXT NOT NULL,
    UNIQUE (experiment_id, name)
) STRICT;

CREATE TABLE workload (
    id            INTEGER PRIMARY KEY,
    experiment_id INTEGER NOT NULL REFERENCES experiment ON DELETE CASCADE,
    name          TEXT NOT NULL,
    runner        TEXT NOT NULL,
    params        TEXT NOT NULL,
    UNIQUE (experiment_id, name)
) STRICT;

CREATE TABLE "case" (
    id          INTEGER PRIMARY KEY,
    subject_id  INTEGER NOT NULL REFERENCES subject ON DELETE CASCADE,
    state       TEXT NOT NULL,
    workload_id INTEGER NOT NULL REFERENCES workload ON DELETE CASCADE,
    UNIQUE (subject_id, state, workload_id)
) STRICT;

CREATE TABLE run (
    id         INTEGER PRIMARY KEY,
    case_id    INTEGER NOT NULL REFERENCES "case" ON DELETE CASCADE,
    round      INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    error      TEXT,
    raw        TEXT NOT NULL,
    UNIQUE (case_id, round)
) STRICT;

CREATE TABLE phase (
    id               INTEGER PRIMARY KEY,
    run_id           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    name             TEXT NOT NULL,
    value            REAL NOT NULL,
    unit             TEXT NOT NULL,
    whole            INTEGER NOT NULL,
    seconds          REAL NOT NULL,
    read_bytes       INTEGER NOT NULL,
    read_requests    INTEGER NOT NULL,
    read_latency     BLOB,
    written_bytes    INTEGER NOT NULL,
    write_requests   INTEGER NOT NULL,
    write_latency    BLOB,
    cpu_user_s       REAL NOT NULL,
    cpu_system_s     REAL NOT NULL,
    cpu_processes    TEXT NOT NULL,
    members          TEXT NOT NULL,
    memory_bytes_max INTEGER,
    series           TEXT NOT NULL,
    zones            TEXT NOT NULL,
    UNIQUE (run_id, name)
) STRICT;
