package scheme_test

import (
	"bytes"
	"testing"

	"podium/pkg/scheme"
)

func TestOpenProtoFindsWhatWasWrapped(t *testing.T) {
	s := scheme.New()
	for _, k := range s.Kinds() {
		obj := k.New()
		obj.SetName("x")
		data, err := s.Encode(obj, scheme.Protobuf)
		if err != nil {
			t.Fatal(err)
		}
		want, err := scheme.BareProto(obj)
		if err != nil {
			t.Fatal(err)
		}
		gvk, bare, err := scheme.OpenProto(data)
		if err != nil || gvk != k.GroupVersionKind || !bytes.Equal(bare, want) {
			t.Errorf("%s: %v, %v, %x, want %x", k.Resource, err, gvk, bare, want)
		}
	}
}

func FuzzOpenProto(f *testing.F) {
	s := scheme.New()
	for _, k := range s.Kinds() {
		data, err := s.Encode(k.New(), scheme.Protobuf)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		gvk, bare, err := scheme.OpenProto(data)
		if err == nil && len(bare) > len(data) {
			t.Fatalf("%v %x", gvk, bare)
		}
	})
}
