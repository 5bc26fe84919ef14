package operator

import (
	"testing"

	"podium/test/e2e/blank"
)

// needs skips the test if there is no Docker engine, no image or no package.
func needs(t *testing.T) (image, deb string) {
	t.Helper()
	return blank.Image(t), blank.Package(t, "../../../_deb/*.deb", "make deb")
}
