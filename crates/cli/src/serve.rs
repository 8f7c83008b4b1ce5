//! `lapstrake serve`.

mod captive;
pub mod config;
pub mod daemon;
mod disk;
mod fronts;
pub mod nbd;
mod part;
pub mod place;
pub mod signals;
pub mod tls;
mod ublk;

use crate::exit::{Exit, Failure, Outcome};
use crate::{complete, options, patience, print, text};
use captive::Captive;
use fronts::Fronts;
use lapstrake_device::{Backend, MemberSpec, quoted};
use lapstrake_export::fuse::Mount;
use lapstrake_export::nbd::ExportInfo;
use lapstrake_export::vhost_user::Disk;
use lapstrake_geometry::{Raid0Layout, Version};
use lapstrake_host::control::{self, Claim, Control};
use lapstrake_host::{Array, NewOverlay, OpenArrayError, OpenRequest, Opened, Options, open};
use lapstrake_host::{STRIPE_CACHE_SIZE, STRIPE_CACHE_SIZES};
use place::{Place, Wanted};
use serde_json::json;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use tls::{Tls, TlsArgs};
use tracing::{info, warn};

const HELP: &str = "\
Examples:
  lapstrake serve a.img b.img c.img d.img
  lapstrake serve --nbd unix:/tmp/data.sock --nbd 127.0.0.1:10809 /dev/sd[b-e]
  lapstrake serve --nbd 0.0.0.0:10809 --tls-certificates /etc/pki/nbd /dev/sd[b-e]
  lapstrake serve --fuse data.raw disk[0-3].img
  lapstrake serve --vhost-user data.vhost disk[0-3].img
  lapstrake serve --ublk /dev/sd[b-e]
  lapstrake serve --overlay rescue.cow --fuse data.raw /dev/sd[b-e]
  lapstrake serve --config data
  lapstrake serve --daemon --fuse data.raw disk[0-3].img
  lapstrake serve --read-only *.img --run 'nbdcopy \"$uri\" -' | zstd > array.zst

Without --nbd, --fuse, --vhost-user and --ublk the array is served by NBD on a Unix socket beside its control socket.
NBD knows no passwords: whoever can connect can read and write the array. With --tls-certificates, TCP clients have to
use TLS, and those on Unix sockets may; --tls-verify-peer and --tls-allow say whose certificates are taken. Without it
only addresses of this machine itself (127.0.0.1, [::1]) are listened at, unless --no-tls is said. --run sets
$uri (and $nbd, the same), $unixsocket, $port, $exportname, $fuse, $vhostuser and $ublk for its command.

At most 256 NBD clients are served at a time. One that is silent between two requests may stay, so
many of those keep others out; one that has not ended its handshake after a second makes room, and one on TCP whose
machine has gone without a word does after ten minutes.

Exit codes:
  0  stopped cleanly, after SIGTERM, SIGINT, SIGHUP or `lapstrake stop`
  1  it could not be served, or not be stopped cleanly
  2  usage
  With --run: the command's exit code, or 128 and its signal's number.";

/// Serve an array over NBD or as a file, until SIGTERM, SIGINT or `lapstrake stop`.
///
/// Members are locked against a second user. Each is told for what it was taken, or why it was
/// left. A clean stop finishes what is in flight, flushes, and marks the array clean.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The array's members
    #[arg(required_unless_present = "config", value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]))]
    pub members: Vec<MemberSpec>,
    /// Take members and options from a file: /etc/lapstrake/NAME.toml, by whose name the array is served then, or one with a
    /// / in its name. Its keys are `members`, whose patterns may have * ? and [...], and long options by their names
    /// (fuse = "data.raw"); an option that the command line says too is an error
    #[arg(long, value_name = "NAME|FILE")]
    pub config: Option<PathBuf>,
    /// Go on in the background once the array is served; messages go to NAME.log beside the control socket then
    #[arg(long, conflicts_with = "run")]
    pub daemon: bool,
    /// Name to serve it by [default: the array's own, without host]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// Serve NBD at a Unix socket or a TCP port (0: any that is free); may be repeated. A URI is
    /// nbd://HOST:PORT/NAME or nbd+unix:///NAME?socket=PATH, as clients take it
    #[arg(long, value_name = "unix:PATH|HOST:PORT|URI", value_parser = Wanted::parser())]
    nbd: Vec<Wanted>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Serve the array as this file, by FUSE: an empty one, or one that is made and removed again;
    /// when it is unmounted and there is no --nbd, --vhost-user or --ublk, the server stops
    #[arg(long, value_name = "FILE")]
    fuse: Option<PathBuf>,
    /// Serve the array as a vhost-user-blk device at a Unix socket: the disk of one virtual machine, whose memory is
    /// shared with the server (QEMU: -object memory-backend-memfd,share=on and -device vhost-user-blk-pci)
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<PathBuf>,
    /// Serve the array as a block device of the kernel, /dev/ublkbN, where it has ublk (Linux 6.5 and newer, `modprobe
    /// ublk_drv`): of any number that is free, or of this one. One that a server of the array has left which died is
    /// taken over, and its users go on
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    ublk: Option<Option<u32>>,
    /// Never write to the members: keep all writes in this copy-on-write file, which is made if it
    /// is not there and continued if it is; when it has no room left, writes fail until the array was
    /// stopped and started again with more (RAID4, 5 and 6 that lack members may also need --force then, as
    /// after a power cut; levels without redundancy: until there is more)
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,
    /// Serve only this logical volume of LVM's; all of it has to lie on the array. `lapstrake look` names what there is
    #[arg(long, value_name = "GROUP/VOLUME", conflicts_with = "partition")]
    volume: Option<String>,
    /// Serve only this partition of the array
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Refuse writes, and write nothing to the members
    #[arg(short = 'o', long, visible_alias = "readonly")]
    read_only: bool,
    /// Run a shell command with the array's places in its environment, and stop when it ends; standard
    /// output is the command's alone
    #[arg(long, value_name = "CMD")]
    pub run: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Use members that are out of date if there are not enough others; take a dirty degraded
    /// array for clean
    #[arg(short, long)]
    force: bool,
    /// Start although members are missing that were there when the array was last in use (mdadm's
    /// --run)
    #[arg(long)]
    degraded: bool,
    /// Give up for good a journal that is lost: what only it held is gone. Redundancy is
    /// computed anew or, with a member missing, taken to be right
    #[arg(long, requires = "force", conflicts_with = "read_only")]
    without_journal: bool,
    /// Change the superblocks first
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["read_only", "ignore_bad_block_log"])]
    update: Option<Update>,
    /// Pages of 4 KiB for each member, in each shard, as md's stripe_cache_size
    #[arg(long, value_name = "N", default_value_t = STRIPE_CACHE_SIZE, value_parser = clap::value_parser!(u32).range(i64::from(*STRIPE_CACHE_SIZES.start())..=i64::from(*STRIPE_CACHE_SIZES.end())))]
    stripe_cache_size: u32,
    /// Milliseconds after the last write until the superblocks say clean; 0: at the stop only
    #[arg(long, value_name = "MS", default_value_t = 200)]
    safe_mode_delay: u64,
    /// Start no recovery or resync until `lapstrake resume`
    #[arg(long)]
    frozen: bool,
    /// KiB/s that a recovery, resync, check or repair has of each member even while clients are busy
    /// [default: 1000, or the greatest if that is less]
    #[arg(long, value_name = "KIB")]
    sync_speed_min: Option<u64>,
    /// KiB/s that it has at most; 0: no limit
    #[arg(long, value_name = "KIB", default_value_t = 0)]
    sync_speed_max: u64,
    /// Threads, each with a part of the array [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    shards: Option<u16>,
    /// What drives the I/O
    #[arg(long, value_enum, default_value_t = BackendName::Auto)]
    backend: BackendName,
    /// Where the control socket goes [default: $LAPSTRAKE_RUN_DIR, /run/lapstrake for root,
    /// $XDG_RUNTIME_DIR/lapstrake, /tmp/lapstrake-UID]
    #[arg(long, value_name = "DIR")]
    control_dir: Option<PathBuf>,
    /// Report in JSON, on one line, once the array is served; with --run, on standard error
    #[arg(long)]
    pub json: bool,
}

/// Which of the arrays on the members is meant.
#[derive(clap::Args)]
pub struct Which {
    /// Only members of the array with this UUID
    #[arg(short, long, value_parser = options::uuid)]
    uuid: Option<[u8; 16]>,
    /// Only members of an array that its superblocks call so (with or without host)
    #[arg(long, value_name = "NAME")]
    set_name: Option<String>,
    /// Of members that hold superblocks of more than one array, those of this version: 0.90, 1.0, 1.1 or 1.2
    #[arg(long, value_name = "VERSION")]
    metadata: Option<Version>,
    /// The file of an external write-intent bitmap, at each start: superblocks do not say that there is
    /// one, and without it an unclean stop costs a resync of everything
    #[arg(short, long, value_name = "FILE")]
    bitmap: Option<PathBuf>,
    /// Take members whose superblocks hold bits or bytes that Lapstrake does not know, as if these were not there;
    /// only where nothing is written to the members. What is read may be wrong
    #[arg(long)]
    ignore_unknown: bool,
    /// The layout of a RAID0 of unlike members whose superblocks do not record it: original is that of kernels before
    /// 3.14, alternate that of later ones
    #[arg(long, value_name = "LAYOUT")]
    raid0_layout: Option<Raid0LayoutName>,
    /// Read blocks all the same that are on record as bad on each member that could give them; only where nothing is
    /// written to the members. They may be readable, and may hold what is old
    #[arg(long)]
    ignore_bad_block_log: bool,
    /// What the map file of GNU ddrescue does not call rescued is a bad block of the image, not zeros; may be repeated
    #[arg(long, value_name = "IMAGE=MAP", value_parser = options::image_and_map())]
    ddrescue_map: Vec<(PathBuf, PathBuf)>,
    /// Take this member for that slot, though its superblock gives it a role that md does not know; may be repeated.
    /// Where members are written, its superblock says so from then on
    #[arg(long, value_name = "MEMBER=SLOT", value_parser = options::forced_role())]
    force_role: Vec<(MemberSpec, u16)>,
    /// Of an array that was split into parts that were used without each other, go on with the part of this member,
    /// if all have seen as many events
    #[arg(long, value_name = "MEMBER", value_parser = options::member())]
    prefer: Option<MemberSpec>,
    /// Of an array in the midst of a reshape, the array's byte at which the two geometries meet, if it is not the one on
    /// record: Linux may have rewritten more than it recorded
    #[arg(long, value_name = "BYTES", value_parser = options::bytes)]
    reshape_position: Option<u64>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Raid0LayoutName {
    Original,
    Alternate,
}

impl From<Raid0LayoutName> for Raid0Layout {
    fn from(name: Raid0LayoutName) -> Self {
        match name {
            Raid0LayoutName::Original => Self::Original,
            Raid0LayoutName::Alternate => Self::Alternate,
        }
    }
}

/// What is changed of the superblocks before the array is served, by mdadm's names.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Update {
    /// Members have no bad-block log any more, whatever was on record
    ForceNoBbl,
}

impl Which {
    /// Whether the array with this UUID may be meant.
    pub fn means(&self, uuid: [u8; 16]) -> bool {
        self.uuid.is_none_or(|wanted| wanted == uuid)
    }

    /// The part of a request that this is.
    pub fn request(&self) -> OpenRequest {
        OpenRequest {
            uuid: self.uuid,
            set_name: self.set_name.clone(),
            set_version: self.metadata,
            bitmap_file: self.bitmap.clone(),
            ignore_unknown: self.ignore_unknown,
            raid0_layout: self.raid0_layout.map(Raid0Layout::from),
            reshape_position: self.reshape_position,
            ignore_bad_block_log: self.ignore_bad_block_log,
            ddrescue_maps: self.ddrescue_map.clone(),
            forced_roles: self.force_role.clone(),
            prefer: self.prefer.clone(),
            ..OpenRequest::default()
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum BackendName {
    /// io_uring, or an error
    Uring,
    /// A pool of threads
    Threads,
    /// What $LAPSTRAKE_BACKEND says, else io_uring, or threads where it is refused
    Auto,
}

/// What a server waits for.
enum Event {
    Signal(i32),
    /// The command of --run.
    Ended,
    /// Somebody asked over the control socket, and wants to know whether it ended clean.
    Stop(Sender<bool>),
    /// The file is mounted no more.
    Unmounted,
}

pub fn run(args: &Args) -> Outcome {
    settings(args).check().map_err(Failure::usage)?;
    let mut places = place::places(&args.nbd)?;
    let writes = !args.read_only && args.overlay.is_none();
    if args.which.ignore_bad_block_log && writes {
        return Err(Failure::usage(
            "--ignore-bad-block-log: only where nothing is written to the members: say --read-only, or --overlay \
             FILE, too; --update force-no-bbl forgets what is on record for good",
        ));
    }
    if args.which.ignore_unknown && writes {
        return Err(Failure::usage(
            "--ignore-unknown: nothing may be written to members that are not understood: say --read-only, or \
             --overlay FILE, too",
        ));
    }
    let request = request(args);
    let opened = patience::telling(&args.members, || open(&request));
    let mut opened = assembled(opened, args.json)?;
    let new_overlay = opened.new_overlay.take();
    let name = opened.parts.name.clone();
    check_exports(args, &name)?;
    let dir = args.control_dir.clone().unwrap_or_else(control::directory);
    let claim = Claim::new(&dir, &name)?;
    let has_others = args.fuse.is_some() || args.vhost_user.is_some() || args.ublk.is_some();
    if places.is_empty() && !has_others {
        places.push(Place::Unix(claim.path().with_extension("nbd")));
    }
    let checked = args.fuse.as_deref().map_or(Ok(()), Mount::check).map_err(Failure::new);
    let checked = checked.and_then(|()| Tls::new(&args.tls));
    let disks = disk::disks(args, &opened);
    let fronts = checked
        .and_then(|tls| Fronts::bind(&places, tls, &disks, &name))
        .map_err(|failure| Failure::new(format!("{}; nothing was written", failure.message)))?;
    let read_only = args.read_only || opened.parts.plan.assembly.lacks_journal;
    let mut export = nbd::export(&opened.parts, read_only);
    let mut disk = disk::disk(&opened.parts, read_only);
    // Before the array's threads are there, so that all inherit the mask (the one of words has its own); until
    // here a signal just ends us.
    signals::block()?;
    let mut array = Array::start(opened.parts, &settings(args))?;
    if let Err(failure) = part::show(&mut array, args.volume.as_deref(), args.partition) {
        array.stop();
        return Err(failure);
    }
    export.size = array.size();
    (disk.size, disk.lending) = (array.size(), array.lending());
    let server = Server { args, name, dir, array, fronts };
    server.run(claim, (export, disk), new_overlay)
}

/// An export has the array's name.
fn check_exports(args: &Args, name: &str) -> Result<(), Failure> {
    let other = |wanted: &&Wanted| wanted.export.as_deref().is_some_and(|export| export != name);
    let Some(Wanted { place, export: Some(export) }) = args.nbd.iter().find(other) else {
        return Ok(());
    };
    Err(Failure::usage(format!(
        "--nbd {place}: the export is called as the array is, {name:?}, not {export:?}; nothing was written: say --name {}, \
         or leave the name out of the URI",
        quoted(export)
    )))
}

fn request(args: &Args) -> OpenRequest {
    OpenRequest {
        members: args.members.clone(),
        read_only: args.read_only,
        force: args.force,
        degraded: args.degraded,
        without_journal: args.without_journal,
        drop_bad_block_logs: args.update == Some(Update::ForceNoBbl),
        name: args.name.clone(),
        overlay: args.overlay.clone(),
        ..args.which.request()
    }
}

/// An array that runs, with the places at which clients will find it.
struct Server<'a> {
    args: &'a Args,
    name: String,
    dir: PathBuf,
    array: Array,
    fronts: Fronts,
}

impl Server<'_> {
    /// Serves until the end.
    fn run(
        mut self,
        claim: Claim,
        served_as: (ExportInfo, Disk),
        new_overlay: Option<NewOverlay>,
    ) -> Outcome {
        let (sender, events) = mpsc::channel();
        let log = claim.path().with_extension("log");
        let begun = self.begin(claim, served_as, sender);
        let (control, captive) = match begun {
            Ok(begun) => begun,
            Err(failure) => {
                // Clients who came in before are seen off, and what they wrote is flushed.
                self.fronts.hang_up();
                self.array.stop();
                if let Some(made) = new_overlay.filter(|_| self.fronts.has_any()) {
                    made.keep();
                }
                return Err(failure);
            }
        };
        if let Some(made) = new_overlay {
            made.keep();
        }
        self.announce();
        let detached =
            daemon::tell_served(&format!("serves {}", self.fronts.uris().join(" ")), &log);
        let may_end = || !self.fronts.has_others() && !self.ends_for_good();
        let asker = match &detached {
            Ok(()) => wait(&events, captive.as_ref(), &may_end),
            Err(_) => None,
        };
        let status = captive.map(Captive::end);
        let name = self.name.clone();
        match (status, self.finish(control, asker, &events)) {
            (_, End { clean: false, .. }) => Err(Failure::new(format!(
                "{name}: could not be stopped cleanly; the messages above say why"
            ))),
            (_, End { unmounted: false, .. }) => Err(Failure::new(format!(
                "{name}: stopped, all that it was sent is flushed and its superblocks say clean, but its file \
                 or device was in use: what a file system on a file had not written yet is \
                 lost. Unmount that and \
                 detach its loop device now, and before the next stop"
            ))),
            (Some(status), _) => Ok(Exit::Of(captive::exit_code(status?))),
            (None, _) => match detached {
                Ok(()) => Ok(Exit::Done),
                Err(error) => Err(Failure::new(format!(
                    "{name}: stopped cleanly: it cannot go on in the background, its messages in {}: {error}",
                    log.display()
                ))),
            },
        }
    }

    /// Lets everybody in: clients, `lapstrake stop`, signals, and starts the command of --run.
    fn begin(
        &mut self,
        claim: Claim,
        (export, disk): (ExportInfo, Disk),
        events: Sender<Event>,
    ) -> Result<(Control, Option<Captive>), Failure> {
        self.fronts.open(&self.array, export, disk)?;
        if let Some(file) = &self.args.fuse {
            self.fronts.mount(&self.array, file, events.clone())?;
        }
        let stop = events.clone();
        let stopper = Box::new(move |asker| {
            // If nobody listens any more, the asker sees its sender dropped.
            let _ = stop.send(Event::Stop(asker));
        });
        let files = self.fronts.served_files(self.args.run.is_some());
        let (handle, uris) = (self.array.handle(), self.fronts.uris());
        let control = Control::start(claim, handle, uris, stopper, files)?;
        let forwarded = events.clone();
        signals::forward(move |signal| forwarded.send(Event::Signal(signal)).is_ok())?;
        let captive = match &self.args.run {
            Some(command) => Some(Captive::start(command, &self.fronts, &self.name, events)?),
            None => None,
        };
        Ok((control, captive))
    }

    fn announce(&self) {
        let facts = self.array.facts();
        let uris = self.fronts.uris();
        let read_only = self.array.is_read_only();
        let text = if self.args.json {
            let value = json!({
                "name": facts.name,
                "uuid": facts.uuid,
                "level": facts.level,
                "array_bytes": facts.array_bytes,
                "export_bytes": self.array.bytes(),
                "read_only": read_only,
                "exports": uris,
                "control_dir": self.dir.to_string_lossy(),
                "pid": std::process::id(),
            });
            format!("{value}\n")
        } else {
            let bytes = self.array.bytes();
            let (kib, size) = (bytes >> 10, text::human(bytes));
            let how = if read_only { ", read-only" } else { "" };
            let uris: String = uris.iter().map(|uri| format!("{uri}\n")).collect();
            format!("{}: {}, {kib} KiB{size}{how}\n{uris}", facts.name, facts.level)
        };
        if self.args.run.is_some() {
            return errln!("{}", text.trim_end());
        }
        // Whoever started the server may not read what it says.
        let _ = print::try_print(format_args!("{text}"));
    }

    /// Whether something that is served is gone for good with the server, so that only who says so ends it.
    fn ends_for_good(&self) -> bool {
        let lost = self.array.handle().deleted();
        let (what, next) = match lost.overlay {
            Some(overlay) => (overlay, ""),
            None if lost.is_end => (
                lost.paths.join(", "),
                "if the array has redundancy, `lapstrake add` spares and `lapstrake replace` such members; ",
            ),
            None => return false,
        };
        let name = quoted(&self.name);
        let handle = self.array.handle();
        handle.scope().run(|| {
            warn!(
            "unmounted, but the server does not end: {what} was deleted or spoiled, and is gone for good with it; {next}\
             `lapstrake stop {name} --force` gives the data up"
            );
        });
        true
    }

    /// Stops the array, gives up every name, and then tells those who asked.
    fn finish(
        mut self,
        mut control: Control,
        asker: Option<Sender<bool>>,
        events: &Receiver<Event>,
    ) -> End {
        daemon::tell_stopping();
        let unmounted = self.fronts.unmount(&self.array);
        self.fronts.hang_up();
        let clean = self.array.stop();
        drop(self.fronts);
        control.close();
        let others = events.try_iter().filter_map(|event| match event {
            Event::Stop(sender) => Some(sender),
            _ => None,
        });
        for asker in asker.into_iter().chain(others) {
            // It may have gone.
            let _ = asker.send(clean);
        }
        End { clean, unmounted }
    }
}

/// How a server ended.
struct End {
    /// The superblocks say clean.
    clean: bool,
    /// Nobody had the file open.
    unmounted: bool,
}

fn settings(args: &Args) -> Options {
    let defaults = Options::default();
    let most = if args.sync_speed_max > 0 { args.sync_speed_max } else { u64::MAX };
    Options {
        read_only: args.read_only,
        shards: args.shards.map_or(defaults.shards, usize::from),
        stripe_cache_size: args.stripe_cache_size,
        safe_mode_delay_ms: args.safe_mode_delay,
        frozen: args.frozen,
        sync_speed_min_kib: args
            .sync_speed_min
            .unwrap_or_else(|| defaults.sync_speed_min_kib.min(most)),
        sync_speed_max_kib: args.sync_speed_max,
        backend: match args.backend {
            BackendName::Uring => Backend::IoUring,
            BackendName::Threads => Backend::Threads,
            BackendName::Auto => Backend::Auto,
        },
        has_control: true,
        ..defaults
    }
}

/// An array that was opened, after telling what became of each member; the members that were taken
/// are told only if `quiet` is false.
pub fn assembled(opened: Result<Opened, OpenArrayError>, quiet: bool) -> Result<Opened, Failure> {
    let report = match &opened {
        Ok(opened) => &opened.report[..],
        Err(OpenArrayError::Refused { report, .. }) => report,
        Err(_) => &[],
    };
    for line in report {
        if !line.taken || line.forced || !quiet || opened.is_err() {
            let member = line.member.to_string();
            match line.taken && !line.forced {
                true => info!(member, "{member}: {}", line.verdict),
                false => warn!(member, "{member}: {}", line.verdict),
            }
        }
    }
    if let Ok(Opened {
        parts,
        stale_bitmap,
        unread_bitmaps,
        unread_bad_block_logs,
        given_up_bitmap,
        given_up,
        ..
    }) = &opened
    {
        let plan = &parts.plan;
        let assembly = &plan.assembly;
        if *stale_bitmap {
            let file = parts.bitmap_file.as_ref();
            let place =
                file.map_or("the members".into(), |file| file.spec().path.display().to_string());
            warn!(
                "the write-intent bitmap of {place} is out of date, since the array was in use \
                 without it: all of it counts as dirty, so a resync that is due goes over everything"
            );
        }
        for member in &plan.members {
            if let Some(what) = member.superblock().unsupported() {
                warn!(
                    "{}: {what}: ignored, as was asked; what is read may be wrong",
                    member.device.spec()
                );
            }
        }
        for recorded in lapstrake_host::recorded(plan) {
            warn!("{}", text::bad_on_record(&recorded));
        }
        let consequence = match &plan.bitmap {
            Some(_) => {
                "all of the others' counts as dirty, so a resync that is due goes over everything"
            }
            None => "the array is read without it",
        };
        for why in unread_bitmaps {
            warn!("a member's write-intent bitmap cannot be used: {why}; {consequence}");
        }
        for why in unread_bad_block_logs {
            warn!(
                "a member's bad-block log cannot be used: {why}; the member is read without it, so that blocks which it \
                 may call bad are read like others"
            );
        }
        if let Some(why) = given_up_bitmap {
            warn!(
                "the write-intent bitmap is given up: {why}; redundancy {}",
                match assembly.resync_from {
                    Some(_) => "is made anew everywhere",
                    None => "is taken to be right, since no member is left to make it of",
                }
            );
        }
        if assembly.degraded > 0 {
            let slots = assembly.config.raid_disks;
            warn!("degraded: {} of {slots} slots lack a member", assembly.degraded);
        }
        for (id, lag_s) in &assembly.older {
            warn!("{}", text::older_copy(&report[*id].member, *lag_s));
        }
        if assembly.newly_degraded {
            warn!("{}", text::MAY_BE_OLD);
        }
        if assembly.lacks_journal {
            warn!(
                "the journal is missing or out of date: the array is read-only, and what only \
                 the journal held is not there; `lapstrake serve --force --without-journal` gives the \
                 journal up, and writes go on"
            );
        }
        if let Some(given_up) = given_up {
            warn!("{}", lapstrake_host::describe_given_up(*given_up));
        }
        // What partial parity logs come to is told when they have been read.
        let is_logged = plan.members.iter().any(|member| member.superblock().ppl().is_some());
        if assembly.resync_from.is_some() && !is_logged {
            warn!(
                "the array was not stopped cleanly, or its first sync is not done: its \
                 redundancy may not agree with its data until it has been resynced, which begins when \
                 it is served"
            );
        }
    }
    opened.map_err(|error| match &error {
        OpenArrayError::Refused { text, .. } => {
            Failure::new(format!("{text}; nothing was written"))
        }
        _ => Failure::new(error),
    })
}

/// Waits for the end, which is that of the command of --run if there is one; who asked for it.
fn wait(
    events: &Receiver<Event>,
    captive: Option<&Captive>,
    may_end_unmounted: &dyn Fn() -> bool,
) -> Option<Sender<bool>> {
    let mut asker = None;
    loop {
        match (events.recv(), captive) {
            (Ok(Event::Ended) | Err(_), _) | (Ok(Event::Signal(_)), None) => return asker,
            (Ok(Event::Stop(sender)), None) => return Some(sender),
            (Ok(Event::Unmounted), None) if may_end_unmounted() => return asker,
            (Ok(Event::Unmounted), _) => {}
            // The command ends first, so that it does not lose its device.
            (Ok(Event::Signal(signal)), Some(captive)) => captive.signal(signal),
            (Ok(Event::Stop(sender)), Some(captive)) => {
                asker = Some(sender);
                captive.signal(libc::SIGTERM);
            }
        }
    }
}
