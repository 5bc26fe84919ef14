package hardware

import "testing"

func FuzzParseTotal(f *testing.F) {
	f.Add("Node 0 MemTotal:       263 kB\nNode 0 MemFree: 1 kB")
	f.Add("MemTotal: 99999999999999999 kB")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := parseTotal(text); err == nil && n < 0 {
			t.Errorf("%q: %d bytes", text, n)
		}
	})
}

func FuzzParseDistances(f *testing.F) {
	f.Add("10 21")
	f.Add("10 -1")
	f.Fuzz(func(t *testing.T, text string) {
		out, err := parseDistances(text, []int{0, 2})
		if err == nil && (len(out) != 2 || out[0] < 0 || out[2] < 0) {
			t.Errorf("%q: %v", text, out)
		}
	})
}
