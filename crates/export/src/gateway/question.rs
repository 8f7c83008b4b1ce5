//! A question that many have at once, and that is asked once for all of them.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Invariants: it is asked once at a time; an answer is only for who came before it was asked for, so that nobody is told
/// what was true before.
pub struct Question<A>(Mutex<Option<(Instant, A)>>);

impl<A> Default for Question<A> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<A: Clone> Question<A> {
    /// The answer, as `ask` finds it, here or for another who has waited, too.
    pub fn ask(&self, ask: impl FnOnce() -> A) -> A {
        let came = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = last.as_ref().filter(|(asked, _)| *asked >= came) {
            return answer.clone();
        }
        let asked = Instant::now();
        let answer = ask();
        *last = Some((asked, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn who_waits_shares_the_next_answer_and_who_comes_later_does_not() {
        let (question, asked) = (Question::default(), AtomicUsize::new(0));
        let count = || asked.fetch_add(1, Ordering::Relaxed) + 1;
        let come = Barrier::new(9);
        thread::scope(|scope| {
            // Those who have come to this one, which is not over, share another.
            let first = || {
                for _ in 0..8 {
                    scope.spawn(|| {
                        come.wait();
                        assert!(question.ask(count) > 1);
                    });
                }
                come.wait();
                count()
            };
            assert_eq!(question.ask(first), 1);
        });
        let before = asked.load(Ordering::Relaxed);
        assert_eq!(question.ask(count), before + 1);
    }
}
