"""A price is the user's, else the list price of exactly that product, else unknown."""

from pathlib import Path

import pytest

from piqc_pipeline.errors import PricesUnreadable
from piqc_pipeline.waste import load_prices
from piqc_pipeline.waste.catalog import load_catalog, parse_catalog, spelling

PRICES = load_prices()


def price(name: str | None, **labels: str) -> float | None:
    found = PRICES.find(name, labels)
    return found.usd_per_hour if found else None


@pytest.mark.parametrize(
    ("name", "usd"),
    [
        ("NVIDIA-H100-80GB-HBM3", 4.00),
        ("NVIDIA H100 80GB HBM3", 4.00),
        ("H100-SXM4-80GB", 4.25),
        ("NVIDIA H100-SXM4-80GB", 4.25),
        ("H100-SXM5-80GB", 5.00),
        ("NVIDIA-H100-NVL", 4.50),
        ("NVIDIA H100 NVL", 4.50),
        ("NVIDIA-H100-PCIe", 4.00),
        ("NVIDIA-A100-SXM4-80GB", 3.50),
        ("NVIDIA A100 80GB PCIe", 3.00),
        ("NVIDIA-A100-SXM4-40GB", 2.50),
        ("NVIDIA-A100-PCIE-40GB", 2.25),
        ("NVIDIA-L40S", 2.00),
        ("NVIDIA-A10G", 1.25),
        ("NVIDIA A10", 1.00),
        ("NVIDIA-L4", 0.80),
        ("Tesla-V100-SXM2-32GB", 1.25),
        ("Tesla V100-SXM2-16GB", 1.00),
        ("Tesla T4", 0.45),
        ("Tesla-T4", 0.45),
        ("T4", 0.45),
        ("Tesla-T4-SHARED", 0.45),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 3.50),
    ],
)
def test_a_product_has_the_price_of_its_own_row(name: str, usd: float) -> None:
    assert price(name) == usd


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA-L40",
        "NVIDIA-RTX-A1000",
        "NVIDIA-H200",
        "NVIDIA-B200",
        "NVIDIA-GH200-480GB",
        "NVIDIA-H20",
        "NVIDIA-A30",
        "NVIDIA-A2",
        "NVIDIA-A16",
        "AMD_Instinct_MI300X",
        "AMD_Instinct_MI355X",
        "AMD Instinct MI350 OAM",
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
        "Standard_ND96isr_MI300X_v5",
        "H100 but not really",
        "xT4",
        "",
        None,
    ],
)
def test_a_name_without_an_exact_row_has_no_price(name: str | None) -> None:
    assert price(name) is None


def test_a_label_and_a_tool_spell_the_same_product() -> None:
    assert spelling("NVIDIA A100-SXM4-80GB") == spelling("nvidia-a100-sxm4-80gb")
    assert load_catalog().find("AMD_Instinct_MI300X") is load_catalog().find("AMD Instinct MI300X")


def test_every_row_says_where_it_is_from() -> None:
    for product in load_catalog().products:
        assert product.spec_source, product.name
        assert (product.usd_per_hour is None) == (product.price_source is None), product.name
        assert product.bf16 or "bf16" not in product.peak_tflops, product.name


def test_dense_peaks_are_not_the_sparse_ones() -> None:
    find = load_catalog().find
    assert [
        (find(name) or pytest.fail(name)).peak_tflops["bf16"]
        for name in ("NVIDIA-H100-80GB-HBM3", "NVIDIA-L4", "NVIDIA-A10G", "NVIDIA-A100-SXM4-80GB")
    ] == [989.4, 121.0, 70.0, 312.0]


def test_two_rows_of_one_name_are_refused() -> None:
    row = 'name = "X"\nvendor = "v"\nbf16 = true\nlink = "pcie"\nspec_source = "s"\nspec_date = 2025-01-01\n'
    tiers = "[tiers]\nup_to_billion_parameters = [7]\nneeded_tier = [0, 1]\nusd_per_hour = [1.0, 2.0]\n"
    with pytest.raises(ValueError, match="two rows"):
        parse_catalog(f"{tiers}[[product]]\n{row}[[product]]\n{row.replace('X', 'x')}")


def test_own_prices_go_by_pool_then_label_then_product(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        '[product]\n"NVIDIA H200" = 3.20\n"Tesla-T4" = 0.30\n'
        '[[label]]\nkey = "karpenter.sh/capacity-type"\nvalue = "spot"\nusd_per_hour = 0.10\nproduct = "NVIDIA-L4"\n'
        '[[pool]]\nname = "reserved"\nusd_per_hour = 0.05\n'
    )
    own = load_prices(file)

    def usd(name: str, **labels: str) -> float | None:
        found = own.find(name, {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()})
        return found.usd_per_hour if found else None

    assert usd("NVIDIA-H200") == 3.20
    assert usd("T4") == 0.30
    spot = {"karpenter.sh/capacity-type": "spot"}
    assert own.find("NVIDIA-L4", spot).usd_per_hour == 0.10  # type: ignore[union-attr]
    assert own.find("Tesla-T4", spot).usd_per_hour == 0.30  # type: ignore[union-attr]
    reserved = {"eks.amazonaws.com/nodegroup": "reserved", **spot}
    found = own.find("NVIDIA-L4", reserved)
    assert found is not None
    assert (found.usd_per_hour, found.source) == (0.05, "price file, pool reserved")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param('[product]\n"T4" = -1', "product T4", id="negative"),
        pytest.param('[product]\n"T4" = nan', "product T4", id="not-a-number"),
        pytest.param('[product]\n"T4" = true', "product T4", id="boolean"),
        pytest.param('[product]\n"T4" = 1e300', "product T4", id="more-than-json-can-hold"),
        pytest.param('[product]\n"Tesla T4" = 1\n"Tesla-T4" = 2', "product Tesla-T4 has two rows", id="two-spellings"),
        pytest.param('[product]\n"T4" = "cheap"', "product T4", id="text"),
        pytest.param("[[pool]]\nusd_per_hour = 1", "pool row 1 needs name", id="pool-without-name"),
        pytest.param('[[label]]\nkey = "a"\nusd_per_hour = 1', "label row 1 needs value", id="label-without-value"),
        pytest.param('[[pool]]\nname = "a"\nusd = 1', "unknown key 'usd'", id="misspelled-key"),
        pytest.param("[gpus]\na = 1", "unknown table 'gpus'", id="misspelled-table"),
        pytest.param("product = 1", "[product] once", id="no-table"),
        pytest.param("pool = 1", "[[pool]] once", id="no-rows"),
        pytest.param("this is no toml", "write it as TOML", id="no-toml"),
    ],
)
def test_a_price_file_that_cannot_be_meant_names_its_row(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(PricesUnreadable) as raised:
        load_prices(file)
    assert words in str(raised.value)


def test_a_missing_price_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PricesUnreadable, match=r"none\.toml"):
        load_prices(tmp_path / "none.toml")


def test_a_card_of_two_dies_is_the_die_that_the_device_plugin_counts() -> None:
    # rocm-smi of an MI250 node: 68702699520 bytes a card, eight cards on four boards.
    for name in ("AMD_Instinct_MI250", "AMD_Instinct_MI250X_OAM"):
        product = load_catalog().find(name)
        assert product is not None and product.memory_gib == pytest.approx(68702699520 / 2**30, abs=0.01)


@pytest.mark.parametrize(
    ("name", "mib"), [("NVIDIA B300 SXM6 AC", 275040), ("NVIDIA GB200", 189471), ("NVIDIA GB300", 284208)]
)
def test_blackwell_boards_have_the_memory_that_nvidia_smi_prints(name: str, mib: int) -> None:
    product = load_catalog().find(name)
    assert product is not None and product.memory_gib == pytest.approx(mib / 1024, abs=0.01)
    assert product.usd_per_hour is None
