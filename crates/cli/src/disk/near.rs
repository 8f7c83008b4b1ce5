//! Names that are nearly another: what somebody may have meant.

/// At most so many letters differ.
const EDITS_MAX: usize = 2;

/// The names that are nearest to `name`, if any is near.
pub fn names(name: &str, known: &[&str]) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let far = |known: &&str| edits(&name, &known.to_ascii_lowercase());
    let least = known.iter().map(far).min()?;
    if least > EDITS_MAX || least * 2 >= name.len() {
        return None;
    }
    let near: Vec<&str> = known.iter().filter(|known| far(known) == least).copied().collect();
    Some(near.join(" or "))
}

/// Letters to insert, leave out or replace to make one of the other (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_named_and_what_is_far_is_not() {
        let known = ["ST3160215A", "hdd-4tb", "hdd-20tb"];
        let cases = [
            ("STM3160215A", Some("ST3160215A")),
            ("hdd-5tb", Some("hdd-4tb")),
            ("hdd-0tb", Some("hdd-4tb or hdd-20tb")),
            ("floppy", None),
            ("x", None),
            ("", None),
        ];
        for (name, is) in cases {
            assert_eq!(names(name, &known).as_deref(), is, "{name}");
        }
    }
}
