// Package jsonpatch applies JSON patches (RFC 6902) with bounded work and
// memory.
package jsonpatch

import (
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// These limit the work of one patch: an operation may move the elements of a
// list that is as long as the object.
const (
	maxOperations = 10000
	maxWork       = 1 << 30 // operations times bytes of the object
	maxCopied     = 3 << 20 // bytes that copy operations add: each can double the size of the object
)

// Patch is a parsed patch. It is immutable.
type Patch struct{ operations jsonpatch.Patch }

// Parse decodes a patch. It returns a 400 if the patch is malformed, or a 413 if
// it has too many operations.
func Parse(data []byte) (Patch, error) {
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return Patch{}, apierrors.NewBadRequest(err.Error())
	}
	if len(operations) > maxOperations {
		return Patch{}, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(operations)))
	}
	return Patch{operations}, nil
}

// Empty reports whether the patch has no operations.
func (p Patch) Empty() bool { return len(p.operations) == 0 }

// Apply returns the patched document. The error says why the patch does not
// apply; it is a 413 if that would take too much work.
func (p Patch) Apply(doc []byte) ([]byte, error) {
	if len(p.operations)*len(doc) > maxWork {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%d operations on an object of %d bytes are too many for one JSON patch", len(p.operations), len(doc)))
	}
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = maxCopied
	return p.operations.ApplyWithOptions(doc, options)
}

// ErrTest is wrapped by the error of Apply if a test operation failed.
var ErrTest = jsonpatch.ErrTestFailed
