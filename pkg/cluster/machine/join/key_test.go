package join

import (
	"errors"
	"strings"
	"testing"
)

func TestCertificateKeys(t *testing.T) {
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseKey(key.Text()); err != nil || again != key {
		t.Errorf("%v, %v", again == key, err)
	}
	for _, text := range []string{"", "12", key.Text() + "00", strings.Repeat("x", 64)} {
		if _, err := ParseKey(text); err == nil || text != "" && strings.Contains(err.Error(), text+" ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	sealed, err := key.Seal("ca.key", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := key.Open("sa.key", sealed); !errors.Is(err, ErrWrongKey) {
		t.Errorf("one file passes for another: %v", err)
	}
}

// FuzzOpen checks that Open accepts only what Seal has returned, and never
// panics.
func FuzzOpen(f *testing.F) {
	key := Key{1, 2, 3}
	sealed, err := key.Seal("ca.key", []byte("secret"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add(sealed[:20])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := key.Open("ca.key", data); err == nil && string(got) != "secret" { // sealed by this process or an earlier one
			t.Errorf("%q was opened as %q", data, got)
		}
	})
}
