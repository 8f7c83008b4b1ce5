//! Promise: a mistake is answered with what is wrong and what to do. They are in `mistakes.txt`, for people to read.

use crate::support::{Lab, Ran};

const MISTAKES: &str = include_str!("mistakes.txt");

/// A mistake and what is expected.
#[derive(Debug, Default)]
struct Mistake<'a> {
    /// In `mistakes.txt`, from 1.
    line: usize,
    words: Vec<&'a str>,
    exit: i32,
    told: Vec<&'a str>,
}

/// What `mistakes.txt` has: files to make, and mistakes in order.
fn mistakes() -> (Vec<(&'static str, String)>, Vec<Mistake<'static>>) {
    let (mut files, mut mistakes) = (Vec::<(&str, String)>::new(), Vec::<Mistake<'_>>::new());
    for (number, line) in MISTAKES.lines().enumerate() {
        let (sign, rest) = line.split_once(' ').unwrap_or((line, ""));
        let last = mistakes.last_mut();
        match sign {
            "$" => {
                let words = rest.split_whitespace().skip(1).collect();
                mistakes.push(Mistake { line: number + 1, words, ..Mistake::default() });
            }
            "exit" => last.unwrap().exit = rest.parse().unwrap(),
            ">" => last.unwrap().told.push(rest),
            "file" => files.push((rest, String::new())),
            "|" => files.last_mut().unwrap().1 += &format!("{rest}\n"),
            _ => assert!(line.is_empty() || line.starts_with('#'), "{}: {line}", number + 1),
        }
    }
    (files, mistakes)
}

impl Mistake<'_> {
    /// What is not as expected.
    fn fault(&self, ran: &Ran) -> Option<String> {
        let said = if self.exit == 0 { format!("{}{}", ran.out, ran.err) } else { ran.err.clone() };
        let missing: Vec<_> = self.told.iter().filter(|told| !said.contains(**told)).collect();
        let is_right = ran.code == self.exit && missing.is_empty() && !said.contains("os error");
        (!is_right).then(|| {
            format!("mistakes.txt:{}: {:?}: {missing:?} in {ran:#?}", self.line, self.words)
        })
    }
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let lab = Lab::new(&[16; 8]);
    std::fs::create_dir(lab.path("d")).unwrap();
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    lab.run("create /dev/md0 -l1 --assume-clean m2 m3").ok();
    let servers = ["m0 m1", "m2 m3"].map(|members| lab.serve(members));
    let (files, mistakes) = mistakes();
    for (name, text) in files {
        std::fs::write(lab.path(name), text).unwrap();
    }
    assert!(mistakes.len() > 60);
    let unchanged = ["m4", "m5"].map(|member| lab.read(member));
    let faults: Vec<String> = mistakes
        .iter()
        .filter_map(|mistake| mistake.fault(&lab.run(&mistake.words.join(" "))))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(["m4", "m5"].map(|member| lab.read(member)) == unchanged, "nothing is written");
    servers.into_iter().for_each(|server| server.stop());
}
