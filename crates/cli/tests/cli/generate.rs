//! Completions and manual pages.

use crate::support::Lab;

const COMMANDS: [&str; 20] = [
    "create", "examine", "scan", "cat", "serve", "status", "detail", "add", "re-add", "fail",
    "remove", "disk", "check", "repair", "resync", "idle", "freeze", "wait", "set", "stop",
];

#[test]
fn every_shell_is_told_to_ask_the_command() {
    let lab = Lab::new(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = lab.run(&format!("completions {shell}")).ok().out;
        assert!(script.contains("LAPSTRAKE_COMPLETE"), "{shell}: {script}");
    }
    assert_eq!(lab.run("completions tcsh").code, 2);
}

/// What a shell offers behind a line, of which the last word is begun; none if there is no such shell.
fn offered(lab: &Lab, shell: &str, line: &str) -> Option<Vec<String>> {
    let script = match shell {
        "bash" => {
            "source <(lapstrake completions bash)
            read -ra COMP_WORDS <<<\"$line\"; [[ $line != *' ' ]] || COMP_WORDS+=('')
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9
            complete -p lapstrake | grep -q _clap_complete_lapstrake || exit 1
            _clap_complete_lapstrake lapstrake \"${COMP_WORDS[COMP_CWORD]}\" \"\"
            printf '%s\\n' \"${COMPREPLY[@]}\""
        }
        "fish" => "lapstrake completions fish | source; complete --do-complete \"$line\"",
        // As zsh calls it where it is installed; what it offers is printed.
        "zsh" => {
            "mkdir -p fpath; lapstrake completions zsh >fpath/_lapstrake; fpath=($PWD/fpath)
            compdef() { : }; _describe() { print -l -- ${(P)3} }
            autoload -U _lapstrake; words=(${(s: :)line}); [[ $line != *' ' ]] || words+=('')
            CURRENT=${#words}; _lapstrake"
        }
        _ => unreachable!(),
    };
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_lapstrake")).parent().unwrap();
    let mut command = lab.command(shell);
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    command.arg("-c").arg(script).env("line", line).env("PATH", path).env("HOME", lab.path(""));
    if !crate::support::installed(shell) {
        crate::support::not_run(&format!("completions of {shell}"), "it is not installed");
        return None;
    }
    let ran = crate::support::Ran::of(command.output().unwrap()).ok();
    // fish and zsh have explanations behind it.
    let word = |line: &str| line.split(['\t', ':']).next().unwrap_or_default().to_owned();
    Some(ran.out.lines().map(word).collect())
}

#[test]
fn shells_offer_what_there_is() {
    let lab = Lab::new(&[16; 3]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    let server = lab.serve("m0 m1");
    lab.run("create elsewhere -l1 --assume-clean m2 missing").ok();
    let other = lab.serve("--control-dir other --degraded m2");
    for shell in ["bash", "fish", "zsh"] {
        for (line, expected) in [
            ("lapstrake cre", &["create"][..]),
            (
                "lapstrake create x --level raid",
                &["raid0", "raid1", "raid4", "raid5", "raid6", "raid10"],
            ),
            ("lapstrake create x --layout left-", &["left-symmetric", "left-asymmetric"]),
            ("lapstrake create x -l1 mi", &["missing"]),
            ("lapstrake create x -l1 m", &["missing", "m0", "m1", "m2"]),
            ("lapstrake status ", &["data"]),
            ("lapstrake fail da", &["data"]),
            ("lapstrake status --control-dir other ", &["elsewhere"]),
            ("lapstrake status --control-dir=other ", &["elsewhere"]),
            ("lapstrake fail data ", &["m0", "m1"]),
            ("lapstrake remove data fa", &["failed"]),
            ("lapstrake add data m", &["m0", "m1", "m2"]),
            ("lapstrake set data sync_speed_", &["sync_speed_min=", "sync_speed_max="]),
            ("lapstrake disk show hdd-4", &["hdd-4tb"]),
        ] {
            let Some(offered) = offered(&lab, shell, line) else { break };
            for word in expected {
                assert!(
                    offered.iter().any(|one| one == word),
                    "{shell}: {line}: {word} in {offered:?}"
                );
            }
        }
    }
    server.stop();
    other.stop();
}

#[test]
fn every_command_gets_a_page() {
    let lab = Lab::new(&[]);
    lab.run("man man1").ok();
    for command in COMMANDS {
        let page = lab.read(&format!("man1/lapstrake-{command}.1"));
        let page = String::from_utf8(page).unwrap();
        let places = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXAMPLES",
            "\"EXIT STATUS\"",
            "\"SEE ALSO\"",
        ];
        let at = places.iter().map(|place| page.find(&format!(".SH {place}\n")));
        let at: Option<Vec<usize>> = at.collect();
        assert!(at.is_some_and(|at| at.is_sorted()), "{command}: {page}");
        assert!(!page.contains("Exit codes:") && !page.contains("Examples:"), "{command}: {page}");
        assert_eq!(
            page.matches(".nf\n").count(),
            page.matches(".fi\n").count(),
            "{command}: {page}"
        );
    }
    let text = |page: &str| String::from_utf8(lab.read(&format!("man1/{page}.1"))).unwrap();
    let first = text("lapstrake");
    for part in [
        ".SH FILES\n",
        ".SH ENVIRONMENT\n",
        "LAPSTRAKE_RUN_DIR",
        "lapstrake\\-create\\fR(1)",
        "mdadm\\fR(8)",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let serve = text("lapstrake-serve");
    for part in ["/etc/lapstrake/NAME.toml", "LAPSTRAKE_CONFIG_DIR", "lapstrake\\-stop\\fR(1)"] {
        assert!(serve.contains(part), "{part}: {serve}");
    }
}

#[test]
fn a_synopsis_tells_every_argument_with_its_values() {
    let lab = Lab::new(&[]);
    lab.run("man man1").ok();
    let synopsis = |command: &str| {
        let page = String::from_utf8(lab.read(&format!("man1/lapstrake{command}.1"))).unwrap();
        let line = page.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(1);
        line.unwrap().replace('\\', "").replace("fB", "").replace("fR", "")
    };
    assert_eq!(synopsis(""), "lapstrake <COMMAND>");
    assert_eq!(synopsis("-disk"), "lapstrake disk <COMMAND>");
    assert_eq!(
        synopsis("-examine"),
        "lapstrake examine [--bitmap] [--badblocks] [--json] [--verbose...] [--log-format <FORMAT>] \
         <MEMBER>..."
    );
    let create = synopsis("-create");
    assert!(create.starts_with("lapstrake create --level <LEVEL> "), "{create}");
    assert!(create.contains(" [--chunk <SIZE>] "), "{create}");
    assert!(create.contains(" [--write-behind[=<N>]] "), "{create}");
    assert!(create.ends_with(" <NAME> <MEMBER|missing>..."), "{create}");
    let export = synopsis("-lab-export");
    assert!(export.starts_with("lapstrake lab export <--csv|--json|--markdown> "), "{export}");
    assert!(export.ends_with(" [EXPERIMENT]..."), "{export}");
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    let lab = Lab::new(&[]);
    assert_eq!(lab.run("").code, 2);
    assert_eq!(lab.run("dance").code, 2);
    assert_eq!(lab.run("serve").code, 2);
    assert_eq!(lab.run("serve x --nbd nonsense").code, 2);
    assert_eq!(lab.run("--version").ok().out.split(' ').next(), Some("lapstrake"));
    for command in COMMANDS {
        let help = lab.run(&format!("{command} --help")).ok().out;
        assert!(help.contains("Exit codes:"), "{help}");
    }
}
