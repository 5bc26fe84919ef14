package conformance

import "slices"

const conformanceImage = "localhost/podium/conformance:v1"

// commonNode returns the rows of the area common-node.
func commonNode() []testcase {
	return slices.Concat(probes(), environments(), configObjects(), containerCommands(), initContainers(), kubeletRows(), lifecycleHooks(),
		podObjects(), podSubresourceRows, securityRows(), subPathExpressions(), sysctls(), terminationMessages())
}
