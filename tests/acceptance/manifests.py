"""What manifests of any example must keep to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

VERSIONS = ["1.25", kubernetes_validate.latest_version()]
"""The oldest and the newest schemas that there are."""

Resource = dict[str, Any]


def read(folder: Path) -> list[Resource]:
    return [each for path in sorted(folder.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]


def named(resources: list[Resource], kind: str, name: str) -> Resource:
    (found,) = (each for each in resources if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def title(resource: Resource) -> str:
    return f"{resource['kind']}-{resource['metadata']['name']}"


def fits_the_schema(resource: Resource) -> None:
    for version in VERSIONS:
        kubernetes_validate.validate(resource, version, strict=True)


def labels_and_ports_find_each_other(resources: list[Resource]) -> None:
    owners = [each for each in resources if "template" in each["spec"]]
    for service in (each for each in resources if each["kind"] == "Service"):
        (owner,) = (each for each in owners if each["metadata"]["name"] == service["metadata"]["name"])
        template = owner["spec"]["template"]
        assert service["spec"]["selector"] == template["metadata"]["labels"]
        assert owner["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
        (port,) = template["spec"]["containers"][0]["ports"]
        assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    for budget in (each for each in resources if each["kind"] == "PodDisruptionBudget"):
        deployment = named(resources, "Deployment", budget["metadata"]["name"])["spec"]
        assert budget["spec"]["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
        assert budget["spec"]["maxUnavailable"] < deployment["replicas"]


def nobody_runs_as_root_or_writes_where_they_should_not(resources: list[Resource]) -> None:
    for owner in (each for each in resources if "template" in each["spec"]):
        pod = owner["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {"requests", "limits"} <= container["resources"].keys()


def network_policies_close_every_pod(resources: list[Resource]) -> None:
    """Each pod has one, by its labels, that opens the port it has to those that are there."""
    owners = {each["metadata"]["name"]: each for each in resources if "template" in each["spec"]}
    policies = [each for each in resources if each["kind"] == "NetworkPolicy"]
    assert {each["metadata"]["name"] for each in policies} == owners.keys()
    labels = [owner["spec"]["template"]["metadata"]["labels"] for owner in owners.values()]
    for policy in policies:
        template = owners[policy["metadata"]["name"]]["spec"]["template"]
        assert policy["spec"]["podSelector"]["matchLabels"] == template["metadata"]["labels"]
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        (rule,) = policy["spec"]["ingress"]
        (port,) = template["spec"]["containers"][0]["ports"]
        assert [each["port"] for each in rule["ports"]] == [port["name"]]
        for peer in rule["from"]:
            assert peer["podSelector"] == {} or peer["podSelector"]["matchLabels"] in labels
