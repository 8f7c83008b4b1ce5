//! The protocol's words: one enum for each field whose value is one of a few.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An enum of words. With `or Other`, which answers have, one that is not known is kept as it was said; of a request it
/// is refused.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
    } $(or $other:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
            $(
                /// A word of a later version.
                #[serde(untagged)]
                $other(String),
            )?
        }

        impl $name {
            /// The protocol's word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    $(Self::$other(word) => word,)?
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// How the array stands; it has the first that fits of `clean`, `active` and `read-only`, and any of the others.
    #[non_exhaustive]
    ArrayState {
        /// The superblocks say that nothing is being written.
        Clean = "clean",
        /// They say that something may be.
        Active = "active",
        /// It is served read-only.
        ReadOnly = "read-only",
        /// It lacks members, and serves all data.
        Degraded = "degraded",
        /// It lacks more than its level survives, or could not be written.
        Failed = "failed",
        /// A recovery runs, or is frozen half done.
        Recovering = "recovering",
        /// A resync is.
        Resyncing = "resyncing",
        /// A check is.
        Checking = "checking",
        /// A repair is.
        Repairing = "repairing",
        /// Data is moved to where another geometry has it.
        Reshaping = "reshaping",
        /// A resync is due.
        ResyncPending = "resyncing (PENDING)",
        /// No sync action goes on or begins.
        Frozen = "frozen",
    } or Other
}

words! {
    /// What a member is to its array.
    #[non_exhaustive]
    MemberState {
        /// It has all of its part.
        InSync = "in_sync",
        /// It is being rebuilt.
        Recovering = "recovering",
        /// It is to take the place of the member of its slot.
        Replacement = "replacement",
        /// It waits to be used.
        Spare = "spare",
        /// What is written goes there first.
        Journal = "journal",
        /// It is used no more.
        Faulty = "faulty",
    } or Other
}

words! {
    /// What runs over the whole array.
    #[non_exhaustive]
    SyncAction {
        /// A member is made anew of the others.
        Recovery = "recovery",
        /// Redundancy is made anew of the data.
        Resync = "resync",
        /// What does not match is counted.
        Check = "check",
        /// What does not match is made to.
        Repair = "repair",
        /// Data is moved to where another geometry has it.
        Reshape = "reshape",
    } or Other
}

words! {
    /// What a step to another size or geometry does.
    #[non_exhaustive]
    StepAction {
        /// Superblocks say what the array is from then on; no block is read or written for that.
        Superblocks = "superblocks",
        /// Clients may use another part of it, which is on no record.
        ArraySize = "array-size",
        /// Members that got slots are made of the others.
        Recovery = "recovery",
        /// Redundancy of what came to it is made.
        Resync = "resync",
        /// Data is moved to where another geometry has it.
        Reshape = "reshape",
    } or Other
}

words! {
    /// What becomes of a write-intent bitmap in a step.
    #[non_exhaustive]
    BitmapFate {
        /// It is taken away before anything else.
        Removed = "removed",
        /// It is taken away, and made again afterwards.
        Remade = "remade",
    } or Other
}

words! {
    /// How a sync action ended.
    #[non_exhaustive]
    SyncResult {
        /// At its end.
        Done = "done",
        /// Before it: it was told to, or a member failed.
        Interrupted = "interrupted",
        /// It could not go on.
        Failed = "failed",
    } or Other
}

words! {
    /// What keeps redundancy right over an unclean stop, in mdadm's words.
    #[non_exhaustive]
    ConsistencyPolicy {
        /// Partial parity logs.
        Ppl = "ppl",
        /// A journal.
        Journal = "journal",
        /// A write-intent bitmap, of whose dirty chunks a resync is made.
        Bitmap = "bitmap",
        /// A resync of everything.
        Resync = "resync",
        /// Nothing: there is no redundancy.
        None = "none",
    } or Other
}

words! {
    /// Where a write-intent bitmap lies.
    #[non_exhaustive]
    BitmapLocation {
        /// Beside each superblock.
        Internal = "internal",
        /// In a file of its own.
        External = "external",
    } or Other
}

words! {
    /// How a member was added.
    #[non_exhaustive]
    HowAdded {
        /// It is what it was, and gets what it missed.
        ReAdded = "re-added",
        /// It is being rebuilt.
        Recovery = "recovery",
        /// It waits to be used.
        Spare = "spare",
    } or Other
}

words! {
    /// What is to run.
    SyncRequest {
        /// Begin to count what does not match.
        Check = "check",
        /// Begin to make it match.
        Repair = "repair",
        /// Begin to make all redundancy anew.
        Resync = "resync",
        /// End a check or repair; let all else go on.
        Idle = "idle",
        /// Pause all, and let nothing begin.
        Frozen = "frozen",
        /// Let go on what was frozen.
        Resume = "resume",
    }
}
