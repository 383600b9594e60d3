"""What the benchmark of peers counts: fires, doubled and lost ones, lateness, gaps, the highest rate, medians."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from bench.many import sent_by_clients
from bench.peers import report
from bench.peers.contenders import CONTENDERS
from bench.peers.environment import names, version
from bench.peers.figures import (
    Grid,
    Start,
    busiest,
    by_fire,
    counted,
    longest_gap,
    medians,
    paced,
    started,
    whole,
)
from bench.peers.measure import LADDER, Peer, chosen, climbed
from bench.peers.picture import draw
from bench.peers.work import Work

GRID = Grid(jobs=10, period=5)
"""Two fires each second: jobs 0 and 5 on 1000, 1 and 6 on 1001, …"""


def starts(late: float = 0.1, until: float = 1010.0, pid: int = 1, told: bool = True) -> list[Start]:
    """Each fire once."""
    return [Start(job, due if told else None, due + late, pid) for job, due in GRID.due(1000, until)]


def test_the_grid_has_each_fire_of_a_stretch():
    assert GRID.due(1000, 1002) == {(0, 1000), (5, 1000), (1, 1001), (6, 1001)}
    assert len(GRID.due(1000, 1010)) == 20
    assert len(Grid(jobs=100, period=1, spread=True).due(1000, 1003)) == 300
    assert (50, 1000.5) in Grid(jobs=100, period=1, spread=True).due(1000, 1001)


@pytest.mark.parametrize(("jobs", "period", "spread"), [(10, 5, False), (20, 1, False), (20, 5, True)])
def test_peers_are_told_the_grid_that_is_counted(jobs, period, spread):
    grid = Grid(jobs, period, spread)
    work = Work(url="", jobs=jobs, period=period, begin=1003, folder="", spread=spread)
    first = {(job, round(work.first(job).timestamp(), 3)) for job in work.numbers()}
    assert first == grid.due(1003, 1003 + period)
    if not spread:
        in_cron = {
            (job, second)
            for job in work.numbers()
            for second in (range(60) if work.seconds(job) == "*" else map(int, work.seconds(job).split(",")))
        }
        assert in_cron == grid.due(0, 60)


def test_all_on_time():
    found = counted(starts(), GRID, 1000, 1010)
    assert (found.due, found.starts, found.lost, found.doubled) == (20, 20, 0, 0)
    assert found.p50_s == pytest.approx(0.1)
    assert found.holds


def test_doubled_and_lost_fires_are_counted_one_by_one():
    noted = [start for start in starts() if start.job != 7]  # two fires of job 7 never start
    noted += [start for start in starts(late=0.4, pid=2) if start.job == 0]  # both of job 0 start twice
    noted += [Start(3, 1003.0, 1009.0, 3)]
    noted += [Start(3, 1013.0, 1013.1, 3), Start(3, 1013.0, 1013.2, 3)]  # outside of what is judged
    found = counted(noted, GRID, 1000, 1010)
    assert (found.lost, found.doubled, found.starts) == (2, 3, 21)
    assert found.worst_s == pytest.approx(0.1), "a fire is as late as its first start"
    assert not found.holds


def test_percentiles_are_of_the_lateness_of_each_fire():
    grid = Grid(jobs=100, period=1)
    noted = [Start(job, 1000.0, 1000.0 + job / 100, 1) for job in range(100)]
    found = counted(noted, grid, 1000, 1001)
    assert found.p50_s == pytest.approx(0.5)
    assert found.p99_s == pytest.approx(0.99)
    assert math.isnan(counted([], grid, 1000, 1001).p50_s)
    assert counted([], grid, 1000, 1001).lost == 100


def test_what_holds_is_complete_and_at_most_two_seconds_late():
    assert counted(starts(late=1.9), GRID, 1000, 1010).holds
    assert not counted(starts(late=2.1), GRID, 1000, 1010).holds
    assert not counted([*starts(), starts()[0]], GRID, 1000, 1010).holds
    assert not counted(starts()[:-1], GRID, 1000, 1010).holds


def test_a_start_without_a_due_time_counts_for_the_last_one_before_it():
    found = counted(starts(late=4.0, told=False), GRID, 1000, 1010)
    assert (found.lost, found.doubled) == (0, 0)
    assert found.p50_s == pytest.approx(4.0)
    assert (4, 1004.0) in by_fire([Start(4, None, 1008.99, 1)], GRID)


def test_who_counts_from_the_last_run_is_late_by_what_is_over_a_period():
    pace = [Start(0, None, 1000 + 5.5 * number, 1) for number in range(5)]
    found = paced(pace, Grid(jobs=1, period=5), 1001, 1022.1)
    assert (found.starts, found.lost, found.doubled) == (4, 0, 0)
    assert found.p99_s == pytest.approx(0.5)


def test_who_counts_from_the_last_run_has_doubled_and_lost_ones_too():
    grid = Grid(jobs=1, period=5)
    pace = [Start(0, None, at, 1) for at in (1000.0, 1005.0, 1005.4, 1020.0)]
    found = paced(pace, grid, 1001, 1022)
    assert (found.starts, found.doubled, found.lost) == (3, 1, 2)
    assert paced(pace, grid, 1001, 1040).lost == 5, "silence up to the end counts"
    assert paced([], grid, 1000, 1010).lost == 2


def test_whole_means_that_nothing_is_missing():
    noted = starts()
    assert whole(noted, GRID, 1000, 1010, drifts=False)
    assert not whole(noted[1:], GRID, 1000, 1010, drifts=False)
    assert whole(noted, GRID, 1000, 1010, drifts=True)
    assert not whole([start for start in noted if start.job != 3], GRID, 1000, 1010, drifts=True)


def test_the_longest_gap_includes_silence_up_to_the_end():
    noted = starts()  # one burst a second, the last at 1009.1
    assert longest_gap(noted, 1000.5, 1009.5) == pytest.approx(1.0)
    assert longest_gap(noted, 1000.5, 1020.0) == pytest.approx(10.9)
    assert longest_gap([], 1000.0, 1008.0) == pytest.approx(8.0)


def test_starts_of_a_time_are_of_whatever_fires():
    assert started(starts(late=3.0), 1000, 1005) == 4
    assert started([], 1000, 1005) == 0


def test_the_busiest_of_those_that_may_be_killed():
    noted = starts(pid=1) + starts(pid=2)[:5] + starts(pid=3)[:7]
    assert busiest(noted, [2, 3]) == 3
    assert busiest([], [2, 3]) in (2, 3)


@pytest.mark.parametrize("limit", [0, 20, 150, 16200])
@pytest.mark.parametrize("first", [20, 150, 2400])
def test_the_ladder_finds_the_highest_rate_from_anywhere(limit, first):
    tried: list[int] = []

    def holds(rate: int) -> bool:
        tried.append(rate)
        return rate <= limit

    assert climbed(holds, LADDER, LADDER.index(first)) == limit
    assert len(tried) == len(set(tried))


def test_rounds_become_medians_and_a_rate_holds_if_most_did():
    rounds = [
        {"p99_ms": 5.0, "holds": True},
        {"p99_ms": 90.0, "holds": False},
        {"p99_ms": 7.0, "holds": True},
    ]
    assert medians(rounds) == {"p99_ms": 7.0, "holds": True}
    assert medians([{"p99_ms": None}, {"p99_ms": 4.0}]) == {"p99_ms": 4.0}
    nested = [{"before": {"p99_ms": each}} for each in (1.0, 2.0, 9.0)]
    assert medians(nested) == {"before": {"p99_ms": 2.0}}


def test_every_contender_has_an_app_and_a_version():
    apps = Path(report.__file__).parent / "apps"
    for contender in CONTENDERS:
        assert (apps / f"{contender.app}.py").exists()
        assert contender.version
        assert contender.first_rate in LADDER
    assert len({contender.name for contender in CONTENDERS}) == len(CONTENDERS)
    with pytest.raises(LookupError):
        version(names()[0], "no-such-package")
    with pytest.raises(SystemExit, match="no such peer: nobody"):
        chosen(["nobody"])


def test_environments_name_packages_and_versions_only():
    for name in names():
        text = (Path(report.__file__).parent / "environments" / f"{name}.txt").read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert all(line.count("==") == 1 and "/" not in line and " " not in line for line in lines)


def results() -> dict:
    """Two contenders on one store: the second has less CPU and is later."""
    found = []
    for contender, p99, cpu in ((CONTENDERS[0], 8.0, 2000.0), (CONTENDERS[2], 1200.0, 500.0)):
        rate = {"due": 100, "lost": 0, "doubled": 0, "p50_ms": p99 / 2, "p99_ms": p99, "cpu_us": cpu}
        rate |= {"server_us": 250.0, "others_cores": 0.1, "holds": True}
        killed = {"due": 80, "lost": 0, "doubled": 1, "worst_s": 1.0, "gap_s": 0.2, "watched_s": 8.0}
        peer = Peer(contender, at_20=rate, at_100=rate, killed=killed, highest=800)
        found.append(peer.to_json())
    return {"date": "2026-11-18", "minutes": 1, "plan": {"rounds": 1, "seconds": 6.0}, "peers": found}


def test_the_report_says_where_a_peer_is_better(tmp_path):
    better = report.better_peers(results())
    assert len(better) == 2
    assert all("CPU per fire against 2.25" in each for each in better)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.update(page, report.document(results(), {"cores": "2"}, ["peers-rate.svg"]))
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| **Fencepost, PostgreSQL** |" in text
    assert "pyncette, PostgreSQL, at 20 fires/s: 0.75 ms" in text
    assert "other work" not in text
    assert "](pictures/peers-rate.svg)" in text
    assert "peers-cpu" not in text
    (tmp_path / "bare.md").write_text("no markers")
    with pytest.raises(SystemExit):
        report.update(tmp_path / "bare.md", "")


def test_the_pictures_are_well_formed_and_name_what_they_show(tmp_path):
    drawn = draw(results(), tmp_path)
    assert [path.name for path in drawn] == ["peers-lateness.svg", "peers-cpu.svg", "peers-rate.svg"]
    for path in drawn:
        tree = ET.parse(path)
        texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
        assert any(text and text.startswith("pyncette, PostgreSQL 1.") for text in texts)
        assert "prefers-color-scheme: dark" in path.read_text()
        card, *rects = tree.iter("{http://www.w3.org/2000/svg}rect")
        assert card.get("class") == "card", "text is readable whatever the colours of the page"
        assert [rect.get("class") for rect in rects] == ["ours", "bar"]
        assert all(0 < float(rect.get("width") or 0) < 760 for rect in rects)


def test_calls_of_scripts_are_not_commands_of_clients():
    heard = (
        b"+OK\r\n"
        b'+1763448000.500000 [0 127.0.0.1:1234] "evalsha" "abc" "0" " lua] "\r\n'
        b'+1763448000.500010 [0 lua] "hget" "jobs" "a"\r\n'
        b'+1763448000.700000 [0 127.0.0.1:1235] "pubsub" "numsub" "x"\r\n'
        b"+1763448000.800000 [0 127.0.0.1:1"
    )
    assert sent_by_clients(heard) == 2
    assert sent_by_clients(b"+OK\r\n") == 0
