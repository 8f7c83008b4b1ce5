use super::*;

/// A device that takes a millisecond for each request, one after the other, and notes them.
#[derive(Default)]
struct Slow {
    free: Nanos,
    done: VecDeque<Completion>,
    /// The tag of a flush under way.
    flush: Option<u64>,
    seen: std::rc::Rc<std::cell::RefCell<Vec<(Op, u64, u64)>>>,
}

impl Volume for Slow {
    fn blocks(&self) -> u64 {
        1 << 30
    }
    fn submit(&mut self, request: Request, now: Nanos) {
        assert_eq!(self.flush, None, "nothing goes beside a flush");
        self.flush = (request.op == Op::Flush).then_some(request.tag);
        assert!(self.flush.is_none() || self.done.is_empty(), "nor does it go beside anything");
        self.free = self.free.max(now) + Nanos(1_000_000);
        self.seen.borrow_mut().push((request.op, request.lba, request.blocks));
        self.done.push_back(Completion { tag: request.tag, at: self.free });
    }
    fn poll(&mut self, now: Nanos) -> Option<Completion> {
        let done = self.done.front().filter(|done| done.at <= now)?;
        self.flush = self.flush.filter(|tag| *tag != done.tag);
        self.done.pop_front()
    }
    fn next_event(&self) -> Option<Nanos> {
        self.done.front().map(|done| done.at)
    }
    fn cpu(&self) -> Nanos {
        Nanos::ZERO
    }
}

fn run(requests: &[(Op, u64, u64)], config: QueueConfig) -> (Vec<(Op, u64, u64)>, Vec<u64>) {
    let seen = std::rc::Rc::default();
    let slow = Slow { seen: std::rc::Rc::clone(&seen), ..Slow::default() };
    let mut queue = Queued::new(Box::new(slow), config);
    for (tag, &(op, lba, blocks)) in requests.iter().enumerate() {
        queue.submit(Request { tag: tag as u64, op, lba, blocks }, Nanos::ZERO);
    }
    let mut tags = Vec::new();
    while let Some(at) = queue.next_event() {
        tags.extend(std::iter::from_fn(|| queue.poll(at)).map(|done| done.tag));
    }
    tags.sort_unstable();
    let seen = seen.borrow().clone();
    (seen, tags)
}

#[test]
fn neighbours_become_one_request_up_to_the_largest() {
    let pages: Vec<_> = (0..64).map(|page| (Op::Write, page * 8, 8)).collect();
    let (seen, tags) = run(&pages, QueueConfig::IDE);
    assert_eq!(seen, [(Op::Write, 0, 256), (Op::Write, 256, 256)]);
    assert_eq!(tags, (0..64).collect::<Vec<_>>(), "each is answered once");
    let (seen, _) = run(&[(Op::Read, 8, 8), (Op::Read, 0, 8)], QueueConfig::IDE);
    assert_eq!(seen, [(Op::Read, 0, 16)], "also in front");
}

#[test]
fn writes_go_upwards_and_reads_first_in_their_order() {
    let requests = [
        (Op::Write, 500, 8),
        (Op::Write, 100, 8),
        (Op::Read, 900, 8),
        (Op::Read, 300, 8),
        (Op::Read, 600, 8),
    ];
    let (seen, _) = run(&requests, QueueConfig::IDE);
    let places: Vec<u64> = seen.iter().map(|request| request.1).collect();
    assert_eq!(places, [900, 300, 600, 100, 500]);
}

#[test]
fn a_flush_waits_for_those_before_it_and_holds_those_after_it() {
    // `Slow` looks at what goes beside it.
    let requests = [(Op::Write, 0, 8), (Op::Flush, 0, 0), (Op::Write, 8, 8)];
    let (seen, tags) = run(&requests, QueueConfig::QUEUED);
    assert_eq!(seen, [(Op::Write, 0, 8), (Op::Flush, 0, 0), (Op::Write, 8, 8)]);
    assert_eq!(tags, [0, 1, 2]);
}

#[test]
fn what_is_larger_than_a_command_goes_in_pieces_and_is_answered_once() {
    let requests = [(Op::Write, 0, 600), (Op::Write, 600, 8)];
    let (seen, tags) = run(&requests, QueueConfig::IDE);
    assert_eq!(seen, [(Op::Write, 0, 256), (Op::Write, 256, 256), (Op::Write, 512, 96)]);
    assert_eq!(tags, [0, 1]);
}

#[test]
fn a_write_below_a_stream_that_goes_up_has_its_turn() {
    let seen = std::rc::Rc::default();
    let slow = Slow { seen: std::rc::Rc::clone(&seen), ..Slow::default() };
    let mut queue = Queued::new(Box::new(slow), QueueConfig::IDE);
    let submit = |queue: &mut Queued, tag: u64, lba: u64, now| {
        queue.submit(Request { tag, op: Op::Write, lba, blocks: 256 }, now);
    };
    for tag in 0..128 {
        submit(&mut queue, tag, 1000 + tag * 256, Nanos::ZERO);
    }
    submit(&mut queue, 128, 0, Nanos::ZERO);
    let mut next = 129;
    while next < 1000 {
        let at = queue.next_event().unwrap();
        while queue.poll(at).is_some() {
            submit(&mut queue, next, 1000 + next * 256, at);
            next += 1;
        }
    }
    let place = seen.borrow().iter().position(|&(_, lba, _)| lba == 0).unwrap();
    assert!((250..300).contains(&place), "{place}");
}
