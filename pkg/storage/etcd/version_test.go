package etcd

import "testing"

func TestVersions(t *testing.T) {
	for text, want := range map[string]struct{ tooOld, truthful bool }{
		"3.3.27":      {true, false},
		"3.4.23":      {false, false},
		"3.4.31":      {false, true},
		"3.5.9":       {false, false},
		"3.5.13":      {false, true},
		"3.6.0-rc.1":  {false, true},
		"3.6.16+dev":  {false, true},
		"4.0.0":       {false, true},
		"2.100.100":   {true, false},
		"3.10.0":      {false, true},
		"3.5.21-foo+": {false, true},
	} {
		v, err := parseVersion(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if v.less(oldest) != want.tooOld || v.truthful() != want.truthful {
			t.Errorf("%s is %v: too old %v, truthful %v", text, v, v.less(oldest), v.truthful())
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, text := range []string{"3.4.23", "3.6.0-rc.1", "", "3", "3.4.", "-1.2.3", "99999999999999999999.0.0", "3.6.16+a-b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseVersion(text)
		if err != nil {
			return
		}
		if again, err := parseVersion(v.String()); err != nil || again != v {
			t.Errorf("%q is %v, which reads as %v (%v)", text, v, again, err)
		}
	})
}
