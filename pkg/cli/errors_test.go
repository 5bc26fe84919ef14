package cli

import (
	"errors"
	"fmt"
	"testing"
)

// TestErrorsLoseNothing checks that joined errors are printed one by one, and
// the text around them stays.
func TestErrorsLoseNothing(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	for want, err := range map[string]error{
		"":                                nil,
		"error: a":                        a,
		"error: a\nerror: b":              errors.Join(a, b),
		"error: it was not done\na\nb":    fmt.Errorf("it was not done\n%w", errors.Join(a, b)),
		"error: a, and undoing failed: b": fmt.Errorf("%w, and undoing failed: %w", a, b),
	} {
		if got := Message(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
