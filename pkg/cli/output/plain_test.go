package output_test

import (
	"strings"
	"testing"

	"podium/pkg/cli/output"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"two\nlines\tand a tab": "two\nlines\tand a tab",
		"\x1b]0;title\a":        `\x1b]0;title\a`,
		"over\rwritten":         `over\rwritten`,
		"\u009b31m, 8 bits":     `\u009b31m, 8 bits`,
		"ünïcödé 'is' ok":       "ünïcödé 'is' ok",
	} {
		if got := output.Plain(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// custom-columns print any field.
func TestColumnsCannotControlTheTerminal(t *testing.T) {
	var out strings.Builder
	if err := (&output.Columns{}).Write(&out, [][]string{{"\x1b[31mred", "next"}, {"plain", "next"}}); err != nil {
		t.Fatal(err)
	}
	if want := "\\x1b[31mred   next\nplain         next\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
