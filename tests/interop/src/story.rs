//! Two stories of an array's life between the kernel and Lapstrake.

use crate::Failure;
use crate::farm::Depth;
use crate::stage::{Stage, without};

/// The kernel makes and fills, we read and write, the kernel reads.
pub fn made_by_kernel(stage: &mut Stage<'_>) -> Result<(), Failure> {
    let bytes = stage.draw.bytes(stage.bytes_max());
    stage.create_by_kernel(bytes)?;
    let sets = stage.we_read(stage.depth)?;
    stage.we_scribble(&[])?;
    let agrees = stage.agrees(stage.script());
    stage.judge.play(&agrees)?;
    lose_members(stage, sets)
}

/// We make and fill, the kernel reads and writes, we read.
pub fn made_by_us(stage: &mut Stage<'_>) -> Result<(), Failure> {
    stage.create_by_us()?;
    let script = stage.agrees(stage.settled());
    let script = stage.pokes(script)?;
    stage.judge.play(&script)?;
    let sets = stage.we_read(stage.depth)?;
    if stage.case.level.has_redundancy() && stage.draw.once_in(3) {
        stage.cut_short()?;
    }
    lose_members(stage, sets)
}

/// One side, and then if all is played the other, writes without some members. Both sides see
/// that these are stale, and read the rest; the kernel takes them back, or recovers blank ones in
/// their place while we get in between, and both read again.
fn lose_members(stage: &mut Stage<'_>, mut sets: Vec<Vec<usize>>) -> Result<(), Failure> {
    let first = stage.draw.once_in(2);
    let rounds = if stage.depth == Depth::Everything { 2 } else { 1 };
    for we_write in [first, !first].into_iter().take(rounds) {
        let Some(missing) = stage.left_out(&sets) else { return Ok(()) };
        let writer = if we_write { "we write" } else { "the kernel writes" };
        lose(stage, &missing, we_write)
            .map_err(without(&missing))
            .map_err(|error| format!("{writer} {error}"))?;
        sets = stage.we_read(Depth::Sample)?;
    }
    Ok(())
}

fn lose(stage: &mut Stage<'_>, missing: &[usize], we_write: bool) -> Result<(), Failure> {
    let mut script = stage.script();
    if we_write {
        stage.we_scribble(missing)?;
        script = script.assemble_without(missing).equals(&stage.image).stop();
    } else {
        let pokes = stage.pokes(stage.script().assemble_without(missing))?;
        stage.judge.play(&pokes)?;
    }
    stage.we_know_stale(missing)?;
    let script = if stage.draw.once_in(3) {
        stage.half_recovered(script, missing)?;
        stage.recovers(stage.script())
    } else {
        stage.takes_back(script, missing)
    };
    stage.judge.play(&script).map(drop)
}
