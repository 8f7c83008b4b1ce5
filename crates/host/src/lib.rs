//! Joins engine, devices and clients in shards
