"""Parsers and the rows that come in real life."""

from __future__ import annotations

import io
import zipfile
from datetime import date

import pytest

from stop_sync.artefacts import ArtefactInvalid, read_rows, write_rows
from stop_sync.model import GtfsStop, Operator, OsmNode, Stop
from stop_sync.preprocess import preprocess_gtfs, preprocess_osm, preprocess_register
from stop_sync.reading.checks import SourceInvalid
from tests.stop_sync.rows import stop

ON = date(2026, 11, 16)
HEADER = (
    "sloid;number;designation;designationOfficial;wgs84North;wgs84East;validTo;uicCountryCode;"
    "trafficPointElementType;businessOrganisation;businessOrganisationAbbreviation;businessOrganisationDescription\n"
)
GOOD = "ch:1:sloid:1:0:1;8570001;A;Moostal, Post;46.9;7.6;2026-11-16;85;BOARDING_PLATFORM;ch:1:sboid:1;RBM;Regiobus\n"


def zipped(**files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name.replace("_txt", ".txt").replace("_csv", ".csv"), text)
    return packed.getvalue()


@pytest.fixture
def register(tmp_path):
    """Preprocess these rows: what became of them, and the stops."""

    def preprocess(rows, header=HEADER):
        (tmp_path / "register.zip").write_bytes(zipped(stops_csv=header + rows))
        tally = preprocess_register(tmp_path / "register.zip", tmp_path, ON)
        return tally, list(read_rows(tmp_path, Stop))

    return preprocess


@pytest.fixture
def osm(tmp_path):
    def preprocess(inside):
        (tmp_path / "osm.xml").write_text(f"<osm>{inside}</osm>", encoding="utf-8")
        tally = preprocess_osm(tmp_path / "osm.xml", tmp_path)
        return tally, list(read_rows(tmp_path, OsmNode))

    return preprocess


# --- the register -------------------------------------------------------------------------------------------


def test_a_row_becomes_a_stop_and_its_operator(register, tmp_path):
    _, stops = register(GOOD)
    assert stops == [Stop("ch:1:sloid:1:0:1", "8570001", "A", "Moostal, Post", 46.9, 7.6, "RBM")]
    assert list(read_rows(tmp_path, Operator)) == [Operator("ch:1:sboid:1", "RBM", "Regiobus")]


def test_what_is_not_ours_is_passed_over(register):
    odd = GOOD.replace("8570001", "?").replace("46.9", "")
    tally, stops = register(
        GOOD
        + GOOD.replace(";85;", ";80;")
        + GOOD.replace("BOARDING_PLATFORM", "BOARDING_AREA")
        + GOOD.replace("2026-11-16", "2026-11-15")
        + odd.replace(";85;", ";80;")
    )
    assert len(stops) == 1
    assert tally.passed_over == {"foreign": 2, "no platform": 1, "expired": 1}
    assert str(tally).startswith("register: 1 kept; left out: 2 foreign")


def test_a_byte_order_mark_quotes_and_other_columns_do_no_harm(register):
    row = GOOD.replace("Moostal, Post", '"Moostal; ""Post""\nBahnhof"').rstrip("\n") + ";more\n"
    _, stops = register(row, header="\ufeff" + HEADER.rstrip("\n") + ";other\n")
    assert [stop.name for stop in stops] == ['Moostal; "Post"\nBahnhof']


def test_a_repeated_row_counts_once(register):
    tally, stops = register(GOOD + GOOD)
    assert len(stops) == 1
    assert tally.passed_over == {"repeated": 1}


@pytest.mark.parametrize(
    ("was", "is_now", "why"),
    [
        ("46.9", "", "no coordinates"),
        ("46.9", "north", "no coordinates"),
        ("46.9", "nan", "impossible coordinates"),
        ("46.9", "4690000", "impossible coordinates"),
        ("8570001", "850", "a number that is no UIC reference"),
        ("2026-11-16", "soon", "no date in validTo"),
        ("Moostal, Post", "", "no name"),
        ("Moostal, Post", "x" * 301, "a text that is too long"),
        ("ch:1:sloid:1:0:1", " ", "no sloid"),
    ],
)
def test_a_row_that_cannot_be_read_is_left_out_and_counted(register, was, is_now, why):
    good = "".join(GOOD.replace(":0:1;", f":0:{number};") for number in range(2, 102))
    tally, stops = register(good + GOOD.replace(was, is_now))
    assert len(stops) == tally.kept == 100
    assert tally.unreadable == {why: 1}


def test_a_source_of_which_much_cannot_be_read_is_refused_and_changes_nothing(register, tmp_path):
    register(GOOD)
    with pytest.raises(SourceInvalid, match=r"1 rows cannot be read, 1 of them: no coordinates; compare"):
        register(GOOD + GOOD.replace("46.9", "").replace(":0:1;", ":0:2;"))
    assert len(list(read_rows(tmp_path, Stop))) == 1
    assert not list(tmp_path.glob("*.part"))


def test_a_source_without_a_row_of_ours_is_refused(register):
    with pytest.raises(SourceInvalid, match="not one row is left"):
        register(GOOD.replace(";85;", ";80;"))


def test_a_missing_column_is_named(register):
    with pytest.raises(SourceInvalid, match="no column validTo"):
        register(GOOD, header=HEADER.replace("validTo", "valid_to"))


@pytest.mark.parametrize("language", ["En", "De"])
def test_the_published_columns_of_the_register_are_read(register, tmp_path, language):
    """The register names the organisation of the service point, in four languages."""
    published = HEADER
    for column in ("Abbreviation", "Description"):
        name = f"businessOrganisation{column}"
        published = published.replace(name, f"servicePointBusinessOrganisation{column}{language}")
    published = published.replace(";businessOrganisation;", ";servicePointBusinessOrganisation;")
    _, stops = register(GOOD, header=published)
    assert [stop.operator for stop in stops] == ["RBM"]
    assert list(read_rows(tmp_path, Operator)) == [Operator("ch:1:sboid:1", "RBM", "Regiobus")]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "register.zip").write_bytes(zipped(stops_csv=(HEADER + GOOD).encode() + b"\xff\xfe\n"))
    with pytest.raises(SourceInvalid, match="cannot be read .*; download it again"):
        preprocess_register(tmp_path / "register.zip", tmp_path, ON)


def test_an_archive_with_a_bad_spot_is_refused(tmp_path):
    whole = bytearray(zipped(stops_csv=HEADER + GOOD * 1000))
    whole[len(whole) // 2] ^= 0xFF
    (tmp_path / "register.zip").write_bytes(whole)
    with pytest.raises(SourceInvalid, match="cannot be read"):
        preprocess_register(tmp_path / "register.zip", tmp_path, ON)
    assert not (tmp_path / "stops.jsonl").exists()


@pytest.mark.parametrize("content", [b"<html>", zipped(), zipped(a_csv=HEADER, b_csv=HEADER)])
def test_what_is_no_archive_of_one_csv_file_is_refused(tmp_path, content):
    (tmp_path / "register.zip").write_bytes(content)
    with pytest.raises(SourceInvalid, match="not a zip file|one \\*.csv was expected"):
        preprocess_register(tmp_path / "register.zip", tmp_path, ON)


# --- the timetable ------------------------------------------------------------------------------------------

GTFS = {
    "stops_txt": "stop_id,stop_name,stop_lat,stop_lon\n"
    "ch:1:sloid:1:0:1,Post,46.9,7.6\n8570001:0:b,Post,46.9,7.6\nParent8570001,Post,46.9,7.6\n",
    "routes_txt": "route_id,route_short_name\nr1,31\n",
    "trips_txt": 'trip_id,route_id,trip_headsign\nt1,r1,"Moostal, Bahnhof"\nt2,r1,\nt3,gone,Nirgends\n',
    "stop_times_txt": "trip_id,stop_id\nt1,ch:1:sloid:1:0:1\nt1,ch:1:sloid:1:0:1\nt2,8570001:0:b\n"
    "t3,8570001:0:b\nunknown,Parent8570001\n",
}


def test_lines_and_directions_reach_the_stops(register, tmp_path):
    register(GOOD + GOOD.replace(":0:1;", ":0:2;").replace(";A;", ";B;"))
    (tmp_path / "gtfs.zip").write_bytes(zipped(**GTFS))
    preprocess_gtfs(tmp_path / "gtfs.zip", tmp_path)
    by_sloid, by_platform, parent = read_rows(tmp_path, GtfsStop)
    assert (by_sloid.sloid, by_sloid.routes) == ("ch:1:sloid:1:0:1", ("31", "31 > moostal, bahnhof"))
    assert (by_platform.sloid, by_platform.routes) == ("ch:1:sloid:1:0:2", ("31",))
    assert (parent.sloid, parent.routes) == (None, ())


def test_a_timetable_without_one_of_its_tables_is_refused(register, tmp_path):
    register(GOOD)
    (tmp_path / "gtfs.zip").write_bytes(
        zipped(**{name: text for name, text in GTFS.items() if name != "trips_txt"})
    )
    with pytest.raises(SourceInvalid, match="one trips.txt was expected"):
        preprocess_gtfs(tmp_path / "gtfs.zip", tmp_path)


# --- the map ------------------------------------------------------------------------------------------------

NODE = '<node id="7" lat="46.9" lon="7.6"><tag k="public_transport" v="platform"/>{}</node>'


def test_a_node_with_its_tags_and_what_calls_there(osm):
    _, nodes = osm(
        NODE.format(
            '<tag k="uic_ref" v="8570001"/><tag k="name" v=" Höfli &amp; Co "/><tag k="shelter" v="yes"/>'
        )
        + '<relation id="1"><member type="way" ref="7"/><member type="node" ref="7" role="stop"/>'
        '<tag k="type" v="route"/><tag k="ref" v="31"/><tag k="to" v="Moostal,  Bahnhof"/></relation>'
        '<relation id="2"><member type="node" ref="7"/><tag k="type" v="site"/><tag k="ref" v="99"/></relation>'
    )
    routes = ("31", "31 > moostal, bahnhof")
    assert nodes == [OsmNode(7, 46.9, 7.6, "8570001", "Höfli & Co", "", "", "platform", "", routes)]


def test_other_nodes_are_passed_over(osm):
    bench = (
        '<node id="8" lat="46.9" lon="7.6"><tag k="amenity" v="bench"/></node><node id="9" lat="1" lon="1"/>'
    )
    tally, nodes = osm(NODE.format("") + bench)
    assert [node.id for node in nodes] == [7]
    assert tally.passed_over == {"no stop": 2}


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("highway", "bus_stop", "platform"),
        ("railway", "tram_stop", "stop_position"),
        ("railway", "halt", "station"),
        ("amenity", "bus_station", "station"),
    ],
)
def test_a_node_with_an_older_tag_only_is_a_stop(osm, key, value, kind):
    tally, nodes = osm(f'<node id="1" lat="46.9" lon="7.6"><tag k="{key}" v="{value}"/></node>')
    assert (tally.kept, [node.public_transport for node in nodes]) == (1, [kind])


def test_the_newer_tag_decides(osm):
    """A bus stop that says it is a stop area is none of our kinds."""
    tags = '<tag k="highway" v="bus_stop"/><tag k="public_transport" v="stop_area"/>'
    bench = '<node id="2" lat="46.9" lon="7.6"><tag k="highway" v="bus_stop"/></node>'
    tally, nodes = osm(f'<node id="1" lat="46.9" lon="7.6">{tags}</node>{bench}')
    assert [node.id for node in nodes] == [2]
    assert tally.passed_over == {"no stop": 1}


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    (tmp_path / "osm.xml").write_text(f"<osm>{NODE.format('')}", encoding="utf-8")
    with pytest.raises(SourceInvalid, match="damaged or cut off"):
        preprocess_osm(tmp_path / "osm.xml", tmp_path)
    assert not (tmp_path / "osm_nodes.jsonl").exists()


def test_an_answer_in_which_the_server_gave_up_is_refused(osm):
    with pytest.raises(SourceInvalid, match="gave up: runtime error: Query timed out; try again"):
        osm(NODE.format("") + "<remark> runtime error: Query timed out </remark>")


def test_entities_are_refused(tmp_path):
    (tmp_path / "osm.xml").write_text('<!DOCTYPE osm [<!ENTITY a "aaaa">]><osm/>', encoding="utf-8")
    with pytest.raises(SourceInvalid, match="document type"):
        preprocess_osm(tmp_path / "osm.xml", tmp_path)


def test_an_impossible_id_makes_a_map_of_one_node_unreadable(osm):
    with pytest.raises(SourceInvalid, match="no id"):
        osm(NODE.format("").replace('id="7"', 'id="-7"'))


# --- artefacts ----------------------------------------------------------------------------------------------


def test_an_artefact_of_other_columns_is_refused(register, tmp_path):
    register(GOOD)
    path = tmp_path / "stops.jsonl"
    path.write_text(path.read_text().replace('"sloid"', '"id"'))
    with pytest.raises(ArtefactInvalid, match="delete it and preprocess again"):
        list(read_rows(tmp_path, Stop))


def test_rows_come_back_as_they_were(tmp_path):
    rows = [stop(), stop("b", name="Genève, “Cornavin”\n;\u2028")]
    assert write_rows(tmp_path, Stop, rows) == 2
    assert list(read_rows(tmp_path, Stop)) == rows
