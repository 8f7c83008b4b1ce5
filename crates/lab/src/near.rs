//! Names that are nearly another: what somebody may have meant.

/// At most so many letters are to be inserted, left out or replaced.
const EDITS_MAX: usize = 2;

/// The names that are nearest to `name`, if any is near.
#[must_use]
pub fn names(name: &str, known: &[&str]) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let far = |known: &&str| strsim::levenshtein(&name, &known.to_ascii_lowercase());
    let least = known.iter().map(far).min()?;
    if least > EDITS_MAX || least * 2 >= name.len() {
        return None;
    }
    let near: Vec<&str> = known.iter().filter(|known| far(known) == least).copied().collect();
    Some(near.join(" or "))
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
