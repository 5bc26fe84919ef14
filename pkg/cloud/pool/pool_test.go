package pool

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseRange(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.240-10.0.0.250":           "10.0.0.240-10.0.0.250",
		"10.0.0.240 - 10.0.0.250":         "10.0.0.240-10.0.0.250",
		"10.0.0.240/29":                   "10.0.0.240-10.0.0.247",
		"10.0.0.7":                        "10.0.0.7",
		"10.0.0.7/32":                     "10.0.0.7",
		"2001:db8::/120":                  "2001:db8::-2001:db8::ff",
		"2001:db8::1-2001:db8::1:0":       "2001:db8::1-2001:db8::1:0",
		"10.0.0.250-10.0.0.240":           "! the lower address goes first",
		"10.0.0.1-2001:db8::1":            "! not of one family",
		"10.0.0.1/24":                     "! did you mean 10.0.0.0/24?",
		"10.0.0.0/33":                     "! is not a range",
		"10.0.0.0-":                       "! is not a range",
		"":                                "! is not a range",
		"ten":                             "! is not a range",
		"127.0.0.1":                       "! cannot be reached",
		"224.0.0.0/24":                    "! cannot be reached",
		"0.0.0.0/0":                       "! cannot be reached",
		"fe80::1":                         "! cannot be reached",
		"2001:db8::1%eth0":                "! has a zone",
		"::ffff:10.0.0.1":                 "! write 10.0.0.1",
		"255.255.255.255":                 "! cannot be reached",
		"10.0.0.1-10.0.0.2-10.0.0.3":      "! is not a range",
		"255.255.255.254-255.255.255.255": "! cannot be reached",
	} {
		r, err := ParseRange(text)
		problem, bad := strings.CutPrefix(want, "! ")
		switch {
		case bad && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%q: %v, %v, want an error with %q", text, r, err, problem)
		case !bad && (err != nil || r.String() != want):
			t.Errorf("%q: %v, %v, want %s", text, r, err, want)
		}
	}
}

func parse(t *testing.T, texts ...string) Pool {
	p := Pool{Name: "default"}
	for _, text := range texts {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

func TestAPoolGivesEachAddressOnce(t *testing.T) {
	p := parse(t, "10.0.0.9-10.0.0.10", "2001:db8::fffe/127", "10.0.0.20")
	used := map[netip.Addr]bool{}
	var got []string
	for _, four := range []bool{true, true, true, true, false, false, false} {
		a, ok := p.Free(four, func(a netip.Addr) bool { return used[a] })
		if !ok {
			got = append(got, "none")
			continue
		}
		if used[a] || !p.Contains(a) {
			t.Errorf("%s was given twice, or is not in the pool", a)
		}
		used[a] = true
		got = append(got, a.String())
	}
	if text, want := strings.Join(got, " "), "10.0.0.9 10.0.0.10 10.0.0.20 none 2001:db8::fffe 2001:db8::ffff none"; text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if p.Contains(netip.MustParseAddr("10.0.0.11")) || p.Contains(netip.MustParseAddr("::a00:9")) {
		t.Error("the pool has addresses that nobody gave it")
	}
	if only4 := parse(t, "10.0.0.9"); only4.Has(false) || !only4.Has(true) {
		t.Error("which families a pool has")
	}
}

func TestAWholeFamilyHasAnEnd(t *testing.T) {
	p := Pool{Ranges: []Range{{netip.MustParseAddr("ffff::"), last(netip.MustParsePrefix("::/0"))}}}
	n := 0
	a, ok := p.Free(false, func(netip.Addr) bool { n++; return n < 1000 })
	if !ok || n != 1000 || a.String() != "ffff::3e7" {
		t.Errorf("%s %v after %d questions", a, ok, n)
	}
}

func TestOverlaps(t *testing.T) {
	r := func(text string) Range { return parse(t, text).Ranges[0] }
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{"10.0.0.1-10.0.0.9", "10.0.0.9-10.0.0.20", true},
		{"10.0.0.0/24", "10.0.0.7", true},
		{"10.0.0.1-10.0.0.9", "10.0.0.10-10.0.0.20", false},
		{"10.0.0.1", "2001:db8::1", false},
	} {
		if r(row.a).Overlaps(r(row.b)) != row.want || r(row.b).Overlaps(r(row.a)) != row.want {
			t.Errorf("%s and %s: want %v", row.a, row.b, row.want)
		}
	}
}

// FuzzParseRange checks that a parsed range is ordered, contains both ends, and survives
// String and ParseRange.
func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"10.0.0.240-10.0.0.250", "2001:db8::/120", "10.0.0.7", "10.0.0.7/31", "::/0", "0.0.0.0/0", "a-b", "1.2.3.4-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRange(text)
		if err != nil {
			if !strings.Contains(err.Error(), " ") {
				t.Errorf("%q: %v says nothing", text, err)
			}
			return
		}
		if !r.Contains(r.First) || !r.Contains(r.Last) || r.Last.Less(r.First) {
			t.Errorf("%q: %+v", text, r)
		}
		again, err := ParseRange(r.String())
		if err != nil || again != r {
			t.Errorf("%q became %s, which is %+v, %v", text, r, again, err)
		}
	})
}
