package conformance

import (
	"slices"
)

// storage returns the rows of the area storage: the volumes that hold files of
// API objects, emptyDir and subPath.
func storage() []testcase {
	return slices.Concat(fileVolumes(), downwardVolumes(), emptyDirs(), subPaths(), immutables())
}
