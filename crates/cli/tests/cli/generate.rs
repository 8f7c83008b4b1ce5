//! Completions and manual pages.

use crate::support::Lab;

const COMMANDS: [&str; 20] = [
    "create", "examine", "scan", "cat", "serve", "status", "detail", "add", "re-add", "fail",
    "remove", "disk", "check", "repair", "resync", "idle", "freeze", "wait", "set", "stop",
];

#[test]
fn every_shell_gets_every_command() {
    let lab = Lab::new(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = lab.run(&format!("completions {shell}")).ok().out;
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    assert_eq!(lab.run("completions tcsh").code, 2);
}

#[test]
fn every_command_gets_a_page() {
    let lab = Lab::new(&[]);
    lab.run("man man1").ok();
    for command in COMMANDS {
        let page = lab.read(&format!("man1/lapstrake-{command}.1"));
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains(".SH NOTES\n.nf\n"), "{command}: {page}");
        let (notes, _) = page.split_once(".SH VERSION").unwrap();
        assert!(notes.contains("Exit codes:") && notes.ends_with(".fi\n"), "{command}: {page}");
    }
    assert!(crate::support::exists(lab.path("man1/lapstrake.1")));
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
