//! The control client asks a server, here one of this process.

use crate::support::{Rig, raid5};
use lapstrake::control::{
    Begun, Client, ControlError, MemberState, Request, SyncAction, SyncRequest, SyncResult,
};
use lapstrake_device::MemberSpec;
use lapstrake_host::control::{Claim, Control};
use lapstrake_host::{Array, OpenRequest, Options, open};
use std::time::Duration;

#[test]
fn a_served_array_is_listed_described_and_waited_for() {
    let rig = Rig::full(raid5());
    let members = rig.members.iter().map(MemberSpec::whole).collect();
    let opened = open(&OpenRequest { members, ..OpenRequest::default() }).unwrap();
    let options = Options { shards: 1, ..Options::default() };
    let array = Array::start(opened.parts, &options).unwrap();
    let sockets = tempfile::tempdir().unwrap();
    let client = Client::at(sockets.path());
    assert_eq!(client.served().unwrap(), Vec::<String>::new());
    let claim = Claim::new(sockets.path(), "data").unwrap();
    let exports = vec!["file:///a%20b".to_owned()];
    let stop = Box::new(|_| ());
    let control = Control::start(claim, array.handle(), exports, stop, Vec::new()).unwrap();

    assert_eq!(client.served().unwrap(), ["data"]);
    let detail = client.detail("data").unwrap();
    assert_eq!((&*detail.name, detail.raid_devices), ("data", 3));
    assert_eq!((detail.pid, detail.file()), (Some(std::process::id()), Some("/a b".into())));
    assert_eq!(detail.count(&MemberState::InSync), 3);
    assert!(detail.is_whole() && detail.is_at_rest() && detail.last_sync.is_none());

    let check = Request::Sync { action: SyncRequest::Check };
    client.ask::<Begun>("data", &check).unwrap();
    let detail = client.wait("data", None, |_| ()).unwrap();
    let last = detail.last_sync.unwrap();
    assert_eq!((last.action, last.result), (SyncAction::Check, SyncResult::Done));
    assert_eq!(detail.mismatch_sectors, 0);

    let nobody = Request::Remove { member: "nobody".into() };
    let refused = client.ask::<Begun>("data", &nobody).unwrap_err();
    assert!(matches!(refused, ControlError::Refused { .. }), "{refused}");
    drop(control);
    assert!(array.stop());
    let gone = client.wait("data", Some(Duration::ZERO), |_| ()).unwrap_err();
    assert!(matches!(gone, ControlError::NotServed { .. }), "{gone}");
}
