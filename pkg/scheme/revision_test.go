package scheme_test

import (
	"bytes"
	"testing"

	"podium/pkg/scheme"
)

func TestWithRevisionEqualsEncodingAnew(t *testing.T) {
	for _, k := range scheme.New().Kinds() {
		t.Run(k.Resource, func(t *testing.T) {
			for _, name := range []string{"", "x"} {
				obj := k.New()
				obj.SetName(name)
				obj.SetUID("6f1c0a52")
				obj.SetGeneration(3)
				obj.SetLabels(map[string]string{"a": "b"})
				bare := map[string][]byte{}
				for _, rv := range []string{"", "7", "123456789"} {
					obj.SetResourceVersion(rv)
					data, err := scheme.BareProto(obj)
					if err != nil {
						t.Fatal(err)
					}
					bare[rv] = data
				}
				for from, data := range bare {
					for to, want := range bare {
						got, err := scheme.WithRevision(data, to)
						if err != nil {
							t.Fatal(err)
						}
						if !bytes.Equal(got, want) {
							t.Errorf("from %q to %q:\n got %x\nwant %x", from, to, got, want)
						}
					}
				}
			}
		})
	}
}

func FuzzWithRevision(f *testing.F) {
	s := scheme.New()
	for _, k := range s.Kinds() {
		data, err := scheme.BareProto(k.New())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "42")
	}
	f.Fuzz(func(t *testing.T, data []byte, rv string) {
		out, err := scheme.WithRevision(data, rv)
		if err != nil {
			return
		}
		back, err := scheme.WithRevision(out, rv)
		if err != nil || !bytes.Equal(out, back) {
			t.Fatalf("not stable: %x then %x (%v)", out, back, err)
		}
	})
}
