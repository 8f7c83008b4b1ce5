//! Questions and their answers.

use super::*;
use crate::predict::{processor_profile, profile_named};
use lapstrake_geometry::Layout;
use lapstrake_model::safety::Estimate;
use std::collections::BTreeSet;

fn disks(words: &[&str]) -> Vec<Disk> {
    disks_of(words, None, &profile_named).unwrap()
}

fn question(words: &[&str], load: &str) -> Question {
    let loads = preset(load).unwrap();
    Question {
        disks: disks(words),
        wishes: Wishes {
            capacity: None,
            speeds: Vec::new(),
            loss: 0.01,
            sectors_may_go: false,
            bitmap_may_go: false,
            budget: None,
        },
        loads,
        care: Care::default(),
        processor: processor_profile("epyc-2021").unwrap().build().unwrap(),
        seed: 1,
    }
}

const SIX: [&str; 6] =
    ["hdd-4tb", "hdd-4tb", "hdd-8tb-shingled", "hdd-20tb", "ssd-sata-1tb", "ssd-nvme-1tb"];

#[test]
fn what_is_enumerated_can_be_built_and_windows_do_not_overlap() {
    let disks = disks(&SIX);
    for wished in [None, Some(2 << 40)] {
        let all = enumerate::candidates(&disks, wished);
        let distinct: BTreeSet<String> = all.iter().map(|one| format!("{one:?}")).collect();
        assert_eq!(distinct.len(), all.len());
        for candidate in &all {
            assert!(candidate.capacity() > 0, "{candidate:?}");
            let mut parts: Vec<DiskWindow> =
                candidate.arrays.iter().flat_map(|array| array.parts.clone()).collect();
            parts.sort();
            assert!(parts.iter().all(|part| part.first + part.sectors <= disks[part.disk].sectors));
            for pair in parts.windows(2) {
                let apart = pair[0].disk != pair[1].disk;
                assert!(apart || pair[0].first + pair[0].sectors <= pair[1].first, "{candidate:?}");
            }
            for array in &candidate.arrays {
                let members: BTreeSet<usize> = array.parts.iter().map(|part| part.disk).collect();
                assert_eq!(members.len(), array.parts.len(), "{candidate:?}");
            }
        }
        for level in Level::ALL.into_iter().filter(|level| *level != Level::Raid4) {
            assert!(all.iter().any(|one| one.arrays[0].level == Some(level)), "{level}");
        }
    }
}

#[test]
fn like_disks_are_one_choice() {
    let count = |words: &[&str]| enumerate::candidates(&disks(words), None).len();
    assert!(count(&["hdd-4tbx6"]) < 80, "{}", count(&["hdd-4tbx6"]));
    assert!(count(&["hdd-4tbx24"]) < 400);
    assert!(count(&SIX) > 300);
    // Of two prices the cheap ones are another choice.
    assert!(count(&["hdd-4tbx3", "hdd-4tbx3@50"]) > count(&["hdd-4tbx6"]));
}

#[test]
fn layers_use_what_the_smallest_disk_leaves() {
    let disks = disks(&["hdd-4tbx2", "hdd-8tb-shingledx2"]);
    let all = enumerate::candidates(&disks, None);
    let of_all = |wanted: usize, several: bool| {
        let fits = |one: &&Candidate| {
            one.disks().len() == 4 && one.tolerance() == wanted && (one.arrays.len() > 1) == several
        };
        all.iter().filter(fits).map(Candidate::capacity).max().unwrap() as f64 / 1e12
    };
    // 3 x 4 TB, and another 4 TB mirrored.
    assert!((of_all(1, false) - 12.0).abs() < 0.1, "{}", of_all(1, false));
    assert!((of_all(1, true) - 16.0).abs() < 0.1, "{}", of_all(1, true));
}

#[test]
fn windows_are_as_large_as_what_is_wished_needs() {
    let disks = disks(&["hdd-20tbx4"]);
    let wished = 4 << 40;
    let all = enumerate::candidates(&disks, Some(wished));
    let raid10 = all.iter().filter(|one| one.arrays[0].level == Some(Level::Raid10));
    let short = raid10.filter(|one| one.disks().len() == 4);
    let least = short.map(Candidate::capacity).min().unwrap();
    assert!((wished..wished + wished / 20).contains(&least), "{least}");
}

#[test]
fn a_question_is_answered_the_same_way_twice_and_keeps_to_the_wishes() {
    let mut question = question(&["hitachi-80x3"], "backup");
    question.wishes.capacity = Some(100 << 30);
    let advice = advise(&question, &|_, _| {}).unwrap();
    assert_eq!(advise(&question, &|_, _| {}).unwrap(), advice);
    let pick = &advice.tried[advice.choice.pick.unwrap()];
    assert!(pick.misses.is_empty() && pick.candidate.tolerance() > 0, "{pick:?}");
    assert!(pick.capacity >= 100 << 30 && pick.loss.data.value <= 0.01);
    assert!(pick.longest_rebuild().unwrap() > 0.1 && pick.degraded.is_some(), "{pick:?}");
    // All of each disk is written and two thirds of it read, by the same heads.
    let moves = pick.candidate.arrays[0].level.is_some_and(Level::is_parity);
    assert_eq!(pick.growth_hours.is_some(), moves, "{pick:?}");
    // Without a wish for safety a stripe is faster.
    let change = advice.choice.changes.iter().find(|change| change.wish == "if data may be lost");
    let stripe = &advice.tried[change.unwrap().pick];
    assert!(stripe.candidate.tolerance() == 0 && stripe.score > pick.score, "{stripe:?}");
    let (low, high) = pick.range(0).unwrap();
    assert!(low < pick.speeds[0] && pick.speeds[0] < high, "seen several times: {pick:?}");
    let told = text(&question, &advice);
    assert!(told.starts_with("Build: ") && told.contains("lapstrake create md0"), "{told}");
    let page = page(&question, &advice);
    assert!(page.contains("predicted") && page.contains(&pick.candidate.words(&question.disks)));
    let json = json(&question, &advice);
    let place = json["choice"]["pick"].as_u64().unwrap() as usize;
    assert_eq!(json["tried"][place]["misses"], serde_json::json!([]));
}

#[test]
fn what_cannot_be_met_is_said() {
    let mut question = question(&["hitachi-80x2"], "backup");
    question.wishes.capacity = Some(1 << 40);
    let advice = advise(&question, &|_, _| {}).unwrap();
    let pick = &advice.tried[advice.choice.pick.unwrap()];
    assert_eq!(pick.misses, ["capacity"]);
    assert!(text(&question, &advice).contains("misses only capacity"));
    question.loads[0].io.block = 80 << 30;
    let advice = advise(&question, &|_, _| {}).unwrap();
    assert_eq!((advice.possible, advice.choice.pick), (0, None));
    assert!(text(&question, &advice).contains("that has room for the loads"));
    question.disks.clear();
    assert!(advise(&question, &|_, _| {}).is_err());
}

#[test]
fn the_order_of_disks_changes_nothing_and_the_disk_that_is_missed_most_is_lost() {
    let answer = |words: &[&str]| {
        let question = question(words, "backup");
        let advice = advise(&question, &|_, _| {}).unwrap();
        let told = |one: &Tried| {
            (one.candidate.words(&question.disks), one.speeds.clone(), one.degraded.clone())
        };
        let mirror = |one: &&Tried| one.candidate.arrays[0].level == Some(Level::Raid1);
        let mirror = advice.tried.iter().find(mirror).unwrap();
        let share = (mirror.degraded_score.unwrap() - mirror.score).exp();
        // The fast disk may be the one that is lost: only the slow one is left then.
        assert!(share < 1.0, "{share} of {:?}", mirror.speeds);
        advice.tried.iter().map(told).collect::<Vec<_>>()
    };
    let (slow, fast) = ("hdd-4tb@60", "ssd-sata-1tb@80");
    assert_eq!(answer(&[slow, fast]), answer(&[fast, slow]));
}

#[test]
fn of_disks_that_are_missed_alike_one_is_tried() {
    let disks = disks(&["hdd-4tbx3", "hdd-8tb-shingledx2"]);
    let all = enumerate::candidates(&disks, None);
    let five = || all.iter().filter(|one| one.disks().len() == 5);
    assert!(five().any(|one| one.arrays.len() > 1));
    let of_pairs = |one: &Candidate| one.arrays[0].level == Some(Level::Raid10);
    assert!(five().filter(|one| !of_pairs(one)).all(|one| one.unlike(&disks).len() == 2));
    // Two mirrors of one kind each, and one of both kinds between two such.
    let whole = |disk: usize| DiskWindow { disk, first: 0, sectors: 1 << 30 };
    let pair = |a: usize, b: usize| Array {
        level: Some(Level::Raid1),
        layout: None,
        chunk: None,
        parts: vec![whole(a), whole(b)],
    };
    let unlike = |arrays: Vec<Array>| Candidate::several(arrays, Join::Striped).unlike(&disks);
    assert_eq!(unlike(vec![pair(3, 4), pair(0, 1)]), [0, 3]);
    assert_eq!(unlike(vec![pair(3, 0), pair(1, 2)]), [0, 1, 3]);
    // A RAID10 of such two mirrors.
    let layout = Layout::from_name(Level::Raid10, "n2").unwrap();
    let parts = [0, 1, 2, 3].map(whole).to_vec();
    let ten = Array { level: Some(Level::Raid10), layout: Some(layout), chunk: None, parts };
    assert_eq!(unlike(vec![ten]), [0, 2, 3]);
}

#[test]
fn what_is_small_is_rebuilt_in_a_finite_time() {
    let question = question(&["hdd-4tbx2", "ssd-sata-1tb"], "backup");
    for mebibytes in [130, 200, 512, 1024, 1100, 1200, 1500, 2048] {
        for disks in [[0, 1], [0, 2], [2, 1]] {
            let part = |disk| DiskWindow { disk, first: 0, sectors: mebibytes * 2048 };
            let (level, parts) = (Some(Level::Raid1), disks.map(part).to_vec());
            let mirror = Candidate::one(Array { level, layout: None, chunk: None, parts });
            let hours = trial::rebuild_hours(&mirror, &question, disks[0]).unwrap();
            let fast = mebibytes as f64 / 1000.0 / 3600.0;
            assert!(hours > 0.0 && hours < 20.0 * fast, "{hours} h for {mebibytes} MiB");
        }
    }
}

#[test]
fn where_nothing_is_safe_enough_the_safest_is_near() {
    for capacity in [None, Some(3 << 40)] {
        let mut question = question(&["hdd-4tbx3"], "backup");
        question.wishes.capacity = capacity;
        question.wishes.loss = 1e-12;
        let advice = advise(&question, &|_, _| {}).unwrap();
        let pick = &advice.tried[advice.choice.pick.unwrap()];
        assert_eq!(pick.misses, ["safety"]);
        assert_eq!(pick.candidate.tolerance(), 2, "{pick:?}");
    }
}

#[test]
fn a_bitmap_goes_only_where_it_may_and_what_that_buys_is_told() {
    let mut question = question(&["hdd-4tbx2"], "database");
    question.wishes.sectors_may_go = true;
    let advice = advise(&question, &|_, _| {}).unwrap();
    let pick = &advice.tried[advice.choice.pick.unwrap()];
    assert!(pick.misses.is_empty() && !pick.candidate.no_bitmap, "{pick:?}");
    let wish = "if a crash may cost a resync of the whole";
    let change = advice.choice.changes.iter().find(|change| change.wish == wish).unwrap();
    let bare = &advice.tried[change.pick];
    assert_eq!(bare.misses, ["bitmap"]);
    assert!(bare.candidate.no_bitmap && bare.score > pick.score + 0.05, "{bare:?} {}", pick.score);
    let command = |one: &Candidate| one.commands(&question.disks)[0].clone();
    assert!(!command(&bare.candidate).contains("--bitmap"));
    assert!(command(&pick.candidate).contains("--bitmap internal"));
    question.wishes.bitmap_may_go = true;
    let advice = advise(&question, &|_, _| {}).unwrap();
    assert!(advice.tried[advice.choice.pick.unwrap()].candidate.no_bitmap, "{advice:?}");
    assert!(advice.choice.changes.iter().all(|change| change.wish != wish));
}

#[test]
fn a_hot_spare_is_filled_at_its_own_pace_and_what_it_buys_is_told() {
    let mut question = question(&["ssd-sata-1tbx2", "hdd-4tb"], "database");
    question.wishes.sectors_may_go = true;
    let advice = advise(&question, &|_, _| {}).unwrap();
    let spare = question.disks.iter().position(|disk| disk.is_rotational);
    let (disks, tried) = (&question.disks, &advice.tried);
    let mirrors = |spare: Option<usize>| {
        let fits = move |one: &&Tried| {
            let candidate = &one.candidate;
            let is_fast = candidate
                .disks()
                .iter()
                .all(|disk| Some(*disk) == spare || !disks[*disk].is_rotational);
            candidate.arrays[0].level == Some(Level::Raid1) && candidate.spare == spare && is_fast
        };
        tried.iter().find(fits).unwrap()
    };
    let (plain, spared) = (mirrors(None), mirrors(spare));
    // A terabyte at 500 MB/s, and at the 180 MB/s that the hard disk does at best.
    let (ssd, hdd) = (plain.longest_rebuild().unwrap(), spared.longest_rebuild().unwrap());
    assert!(ssd < 0.7 && hdd > 1.3, "{ssd} h, {hdd} h");
    assert!(spared.rebuild_hours.values().all(|hours| *hours > 1.3), "{:?}", spared.rebuild_hours);
    let pick = &advice.tried[advice.choice.pick.unwrap()];
    assert!(pick.candidate.spare.is_some(), "{pick:?}");
    let told = text(&question, &advice);
    assert!(told.contains("\nThe hot spare: without it a sector or more is lost with"), "{told}");
}

/// Something that was tried, with these figures.
fn made(capacity: u64, speed: f64, loss: f64, cost: f64) -> Tried {
    let estimate = Estimate { value: loss, low: loss, high: loss };
    let part = DiskWindow { disk: 0, first: 0, sectors: 1 << 20 };
    let array = Array { level: None, layout: None, chunk: None, parts: vec![part] };
    Tried {
        candidate: Candidate::one(array),
        capacity,
        cost,
        looks: vec![Look { speeds: vec![speed], degraded: None, core: vec![0.0] }],
        speeds: vec![speed],
        degraded: None,
        score: speed.ln(),
        degraded_score: None,
        rebuild_hours: BTreeMap::new(),
        growth_hours: None,
        loss: Loss { array: estimate, data: estimate, lives: 1 },
        misses: Vec::new(),
    }
}

#[test]
fn the_fastest_that_meets_the_wishes_is_picked_and_of_equals_the_larger() {
    let question = question(&["hdd-4tb"], "backup");
    let tried = [
        made(100, 300.0, 0.5, 1.0),
        made(100, 200.0, 1e-4, 1.0),
        made(150, 195.0, 1e-4, 1.0),
        made(150, 196.0, 1e-6, 1.0),
        made(400, 150.0, 1e-3, 1.0),
    ];
    let choice = choose(&tried, &question);
    assert_eq!(choice.pick, Some(3));
    assert_eq!(choice.runners_up[0], 2);
    assert_eq!(choice.pareto, [0, 3, 4]);
    let change =
        |wish: &str| choice.changes.iter().find(|one| one.wish == wish).map(|one| one.pick);
    assert_eq!(change("if data may be lost"), Some(0));
    assert_eq!(change("if it must be larger"), Some(4));
}

#[test]
fn a_little_more_room_is_no_more_and_speeds_count_as_in_the_answer() {
    let mut question = question(&["hdd-4tb"], "backup");
    let about = [made(1008, 100.0, 1e-4, 1.0), made(1007, 109.0, 1e-4, 1.0)];
    assert_eq!(choose(&about, &question).pick, Some(1));
    let slow =
        [made(1001, 50.0, 1e-4, 1.0), made(1000, 90.0, 1e-4, 1.0), made(900, 150.0, 1e-4, 1.0)];
    let offers = choose(&slow, &question).offers;
    assert_eq!(offers.iter().map(|offer| offer.place).collect::<Vec<_>>(), [1]);
    question.wishes.capacity = Some(2000);
    assert_eq!(choose(&slow, &question).pick, Some(1));
    // Three times as much is written as read.
    question.wishes = Wishes { capacity: None, speeds: vec![Some(1e3); 2], ..question.wishes };
    let of = |speeds: [f64; 2]| {
        let score = question.score(&speeds);
        Tried { speeds: speeds.to_vec(), score, ..made(1000, 1.0, 1e-4, 1.0) }
    };
    assert_eq!(choose(&[of([100.0, 900.0]), of([200.0, 300.0])], &question).pick, Some(1));
}

#[test]
fn where_nothing_meets_the_budget_the_nearest_to_it_is_told() {
    let mut question = question(&["hdd-4tbx4@100"], "media");
    for (budget, expected) in [(300.0, vec![]), (299.0, vec!["budget"]), (150.0, vec!["budget"])] {
        question.wishes.budget = Some(budget);
        let advice = advise(&question, &|_, _| {}).unwrap();
        let pick = &advice.tried[advice.choice.pick.unwrap()];
        assert_eq!((pick.cost, &pick.misses), (300.0, &expected), "{budget}: {pick:?}");
    }
}

#[test]
fn the_safest_that_is_offered_is_the_safest() {
    let question = question(&["ST3160215A", "ST340015A", "SP1614N"], "backup");
    let advice = advise(&question, &|_, _| {}).unwrap();
    let offer = advice.choice.offers.iter().find(|offer| offer.what.starts_with("the safest"));
    let safest = &advice.tried[offer.unwrap().place].candidate;
    assert_eq!((safest.arrays[0].level, safest.tolerance()), (Some(Level::Raid1), 2));
}

#[test]
fn small_writes_everywhere_are_not_for_shingled_disks() {
    let mut question = question(&["hdd-8tb-shingledx2", "hdd-20tbx2"], "vm-host");
    question.wishes.sectors_may_go = true;
    let advice = advise(&question, &|_, _| {}).unwrap();
    let pick = &advice.tried[advice.choice.pick.unwrap()];
    let is_shingled = |disk: &usize| question.disks[*disk].profile.is_shingled();
    assert!(!pick.candidate.disks().iter().any(is_shingled), "{pick:?}");
    // A band is read and written anew, 256 MiB, for each eighty writes or so.
    let disk = question.disks.iter().position(|disk| disk.profile.is_shingled()).unwrap();
    let part = DiskWindow { disk, first: 0, sectors: question.disks[disk].sectors };
    let bare = Array { level: None, layout: None, chunk: None, parts: vec![part] };
    let (paces, _) = trial::speeds(&Candidate::one(bare), &question, 1, SPAN).unwrap();
    let rate = paces[0].bytes_per_s / 8192.0;
    assert!((10.0..300.0).contains(&rate), "{rate} requests a second");
}

#[test]
fn six_unlike_disks_have_an_answer() {
    let mut question = question(&SIX, "file-server");
    question.wishes.capacity = Some(5 << 40);
    let began = std::time::Instant::now();
    let advice = advise(&question, &|_, _| {}).unwrap();
    println!("{:.1} s\n{}", began.elapsed().as_secs_f64(), text(&question, &advice));
    let pick = &advice.tried[advice.choice.pick.unwrap()];
    assert!(pick.misses.is_empty() && pick.candidate.tolerance() > 0, "{pick:?}");
    assert_eq!(advice.notes, [""; 0]);
    assert!(advice.tried.len() > 12 && advice.choice.runners_up.len() == 3);
}

#[test]
fn commands_name_windows_to_the_sector_and_are_quoted() {
    let mut disks = disks(&["hdd-4tb", "hdd-8tb-shingled"]);
    disks[1].name = "b ig".into();
    let sectors = disks[0].sectors;
    assert!(!sectors.is_multiple_of(2048));
    let part = |disk| candidate::DiskWindow { disk, first: 0, sectors };
    let array = candidate::Array {
        level: Some(Level::Raid1),
        layout: None,
        chunk: None,
        parts: vec![part(0), part(1)],
    };
    let commands = Candidate::one(array).commands(&disks);
    let second = format!("'b ig@0M+{}K'", sectors / 2);
    assert!(commands[0].ends_with(&format!("{} {second}", disks[0].name)), "{commands:?}");
}

fn picked(question: &Question) -> (Advice, String) {
    let advice = advise(question, &|_, _| ()).unwrap();
    let told = text(question, &advice);
    (advice, told)
}

#[test]
fn a_speed_has_a_bar_where_published_arrays_speak_for_it_and_else_is_a_guess() {
    let question = question(&["hdd-4tbx2"], "media");
    let (advice, told) = picked(&question);
    assert!(told.contains("With 95 %, by what the models were off"), "{told}");
    assert!(told.contains("A guess, without a bar: media: play: how several streams"), "{told}");
    let json = json(&question, &advice);
    let bars = &json["tried"][advice.choice.pick.unwrap()]["bytes_per_second_bar"];
    let ends = bars["media: record"].as_array().unwrap();
    assert!(ends[0].as_f64().unwrap() < 0.8 * ends[1].as_f64().unwrap(), "{bars}");
    assert!(bars["media: play"].as_str().unwrap().starts_with("a guess: "), "{bars}");
}

#[test]
fn what_one_core_limits_is_told() {
    let (_, told) = picked(&question(&["ssd-nvme-1tbx2"], "vm-host"));
    assert!(told.contains("One processor core limits vm-host: requests"), "{told}");
    let (_, told) = picked(&question(&["hdd-4tbx2"], "vm-host"));
    assert!(!told.contains("processor core"), "{told}");
}

#[test]
fn disks_on_one_cable_are_slower_together_and_unlike_others() {
    let rate = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    let free = question(&["hitachi-80x2"], "backup");
    let cable = on_cable(free.disks.clone(), "hitachi-80-1,hitachi-80-2@66000000", &rate).unwrap();
    let held = Question { disks: cable, ..free.clone() };
    let written = |question: &Question| {
        let (advice, _) = picked(question);
        advice.tried[advice.choice.pick.unwrap()].speeds[0]
    };
    let (free, held) = (written(&free), written(&held));
    assert!(held < 0.75 * free, "{held} {free}");
    let three = disks(&["hitachi-80x3"]);
    let three = on_cable(three, "hitachi-80-1,hitachi-80-3", &rate).unwrap();
    let kinds: BTreeSet<&str> = three.iter().map(|disk| disk.kind.as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["hitachi-80", "hitachi-80 on cable 1"]));
    for bad in ["hitachi-80-1", "hitachi-80-2,x", "hitachi-80-1,hitachi-80-2", "hitachi-80-2,x@y"] {
        assert!(on_cable(three.clone(), bad, &rate).is_err(), "{bad}");
    }
    for (given, is_one) in [(999_999, false), (1_000_000, true), (1_000_000_001, false)] {
        let word = format!("hitachi-80-1,hitachi-80-2@{given}");
        assert_eq!(on_cable(disks(&["hitachi-80x2"]), &word, &rate).is_ok(), is_one, "{word}");
    }
}
