//! Arrays that are open for reading, several at once, with what is on them.

use crate::exit::Failure;
use crate::reader::ArrayDevice;
use crate::{patience, serve};
use lapstrake_device::{Member, MemberSpec};
use lapstrake_host::scan::{self, Look};
use lapstrake_host::{Array, OpenRequest, Options, open_whole};
use lapstrake_volumes::{Device, Survey};
use tracing::warn;

/// An array, or a device that is none's member: an image of one, or a file that a server shows.
pub enum Source {
    /// By the name in its superblocks.
    Array(String, Box<Array>),
    /// As it was named.
    Plain(Box<Member>),
}

impl Source {
    /// What it is called.
    pub fn name(&self) -> String {
        match self {
            Self::Array(name, _) => name.clone(),
            Self::Plain(member) => member.spec().to_string(),
        }
    }

    /// Whether it is put together of members.
    pub fn is_array(&self) -> bool {
        matches!(self, Self::Array(..))
    }

    /// It, if it is one.
    pub fn array(&self) -> Option<&Array> {
        match self {
            Self::Array(_, array) => Some(array),
            Self::Plain(_) => None,
        }
    }

    /// Gives its members back.
    fn stop(self) {
        if let Self::Array(_, array) = self {
            array.stop();
        }
    }
}

impl Device for Source {
    fn size(&self) -> u64 {
        match self {
            Self::Array(_, array) => ArrayDevice(array).size(),
            Self::Plain(member) => member.size(),
        }
    }

    fn sector_bytes(&self) -> Option<u32> {
        match self {
            Self::Array(..) => None,
            Self::Plain(member) => member.is_block().then(|| member.block_size()),
        }
    }

    fn get(&self, offset: u64, len: u64) -> Vec<u8> {
        match self {
            Self::Array(_, array) => ArrayDevice(array).get(offset, len),
            Self::Plain(member) => {
                let len = len.min(self.size().saturating_sub(offset));
                // Whole blocks, as a device may want it.
                let block = u64::from(member.block_size());
                let from = offset / block * block;
                let to = (offset + len).next_multiple_of(block).min(member.size() / block * block);
                let mut bytes = vec![0; to.saturating_sub(from) as usize];
                if member.read_at(from, &mut bytes).is_err() {
                    return Vec::new();
                }
                bytes.drain(..((offset - from) as usize).min(bytes.len()));
                bytes.truncate(len as usize);
                bytes
            }
        }
    }
}

/// Sources that are open, and what is on them.
pub struct Stack {
    /// Arrays first.
    pub sources: Vec<Source>,
    /// Of all together.
    pub survey: Survey,
    /// How many could not be opened; it was told why.
    pub failed: usize,
    /// An array may be an old state of itself: see `text::MAY_BE_OLD`.
    pub may_be_old: bool,
}

impl Stack {
    /// Opens the arrays that these members make, as `scan` groups them, and looks at what is on them. What is no array's
    /// member is looked at as it is.
    pub fn open(
        members: &[MemberSpec],
        which: &serve::Which,
        force: bool,
    ) -> Result<Self, Failure> {
        let looks =
            members.iter().flat_map(|spec| scan::with_partitions(spec, false, patience::look));
        let found = scan::scan(looks);
        let (sources, survey) = (Vec::new(), Survey::default());
        let mut stack = Self { sources, survey, failed: 0, may_be_old: false };
        for failure in &found.failures {
            warn!("{failure}");
            stack.failed += 1;
        }
        for array in found.arrays.iter().filter(|array| which.means(array.uuid)) {
            let members = array.candidates.iter().map(|look| look.spec().clone()).collect();
            let uuid = Some(array.uuid);
            stack.add(OpenRequest { members, uuid, force, ..which.request() });
        }
        let within: Vec<_> = found.arrays.iter().flat_map(|array| &array.candidates).collect();
        // A disk whose partitions are members has been looked at by these.
        let is_own = |look: &&Look| {
            members.contains(look.spec())
                && within.iter().all(|of| of.spec().path != look.spec().path)
        };
        for look in found.others.iter().filter(is_own) {
            stack.sources.push(Source::Plain(Box::new(Member::peek(look.spec())?)));
        }
        if stack.sources.is_empty() {
            return Err(Failure::new(
                "there is nothing to look at: no array could be put together; nothing was written: lapstrake scan \
                 tells more",
            ));
        }
        let devices: Vec<&dyn Device> = stack.sources.iter().map(|it| it as &dyn Device).collect();
        stack.survey = Survey::of(&devices);
        Ok(stack)
    }

    fn add(&mut self, request: OpenRequest) {
        let request = OpenRequest { read_only: true, degraded: true, ..request };
        let members = request.members.clone();
        let opened = patience::telling(&members, || open_whole(request));
        let settings = Options { read_only: true, shards: 1, ..Options::default() };
        let started = serve::assembled(opened, true).and_then(|opened| {
            let name = opened.parts.name.clone();
            let may_be_old = opened.parts.plan.assembly.newly_degraded;
            let array = Array::start(opened.parts, &settings)?;
            Ok((Source::Array(name, Box::new(array)), may_be_old))
        });
        match started {
            Ok((source, may_be_old)) => {
                self.sources.push(source);
                self.may_be_old |= may_be_old;
            }
            Err(failure) => {
                warn!("{}", failure.message);
                self.failed += 1;
            }
        }
    }

    /// Gives all members back.
    pub fn stop(self) {
        self.sources.into_iter().for_each(Source::stop);
    }
}
