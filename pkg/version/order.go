package version

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// Release is a version that can be compared with others.
type Release struct {
	Major, Minor, Patch uint
	Commits             uint64 // number of commits in the build; 0: unknown
}

// Parse parses the version of a daemon. A version of another Kubernetes distribution has no
// number of commits.
func Parse(text string) (Release, error) {
	v, err := utilversion.ParseSemantic(text)
	if err != nil {
		return Release{}, fmt.Errorf("%q is no version of Kubernetes: %w", text, err)
	}
	r := Release{Major: v.Major(), Minor: v.Minor(), Patch: v.Patch()}
	if parts := strings.Split(v.BuildMetadata(), "."); len(parts) == 3 && parts[0] == "podium" {
		r.Commits, _ = strconv.ParseUint(parts[1], 10, 64)
	}
	return r, nil
}

// Compare returns a negative number if r is older than other, positive if it is newer.
func (r Release) Compare(other Release) int {
	return cmp.Or(cmp.Compare(r.Major, other.Major), cmp.Compare(r.Minor, other.Minor), cmp.Compare(r.Patch, other.Patch), cmp.Compare(r.Commits, other.Commits))
}

// MinorsFrom returns by how many minor versions r is newer than other.
func (r Release) MinorsFrom(other Release) int { return int(r.Minor) - int(other.Minor) }
