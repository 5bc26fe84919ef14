package version

import "testing"

// Each is older than the next.
func TestOrder(t *testing.T) {
	var last Release
	for _, text := range []string{"v1.35.9+podium.900.aaaaaaa", "v1.36.6", "v1.36.6+podium.9.0000000", "v1.36.6+podium.10.1234567", "v1.36.7+podium.2.abcdef0", "v1.37.0", "v2.0.0"} {
		r, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if r.Compare(last) <= 0 || last.Compare(r) >= 0 || r.Compare(r) != 0 {
			t.Errorf("%s (%+v) is not newer than %+v", text, r, last)
		}
		last = r
	}
	if a, b := must(t, "v1.38.0"), must(t, "v1.36.9"); a.MinorsFrom(b) != 2 || b.MinorsFrom(a) != -2 {
		t.Errorf("%+v is %d minors from %+v", a, a.MinorsFrom(b), b)
	}
	if must(t, "v1.36.6").Compare(must(t, "v1.36.6+podium")) != 0 {
		t.Error("a build without a number is newer or older than the version itself")
	}
	for _, bad := range []string{"", "1", "v1.x.2", "podium"} {
		if r, err := Parse(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, r)
		}
	}
	if _, err := Parse(Podium); err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, text string) Release {
	t.Helper()
	r, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{Podium, "v1.36.6+podium.245.bb2640a", "v1.36.0-rc.1", "v18446744073709551616.0.0", "v1.36.6+podium.-1.x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err == nil && r.Compare(r) != 0 {
			t.Errorf("%q is not as old as itself", text)
		}
	})
}
