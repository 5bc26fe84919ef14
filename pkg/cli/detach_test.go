package cli

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDetachKeysEndTheInput(t *testing.T) {
	for name, tc := range map[string]struct{ keys, typed, want string }{
		"Default":    {"", "ls\n\x10\x11rest", "ls\n"},
		"Other":      {"ctrl-],x,ctrl-@", "a\x10\x11b\x1dx\x00c", "a\x10\x11b"},
		"Incomplete": {"", "a\x10b\x10", "a\x10b\x10"},
		"Repeated":   {"", "a\x10\x10\x11b", "a\x10"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(tc.typed), iotest.OneByteReader(strings.NewReader(tc.typed))} {
				r, err := newDetachReader(in, tc.keys)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r)
				if err != nil || string(got) != tc.want {
					t.Errorf("read %q, %v; want %q", got, err, tc.want)
				}
			}
		})
	}
}
