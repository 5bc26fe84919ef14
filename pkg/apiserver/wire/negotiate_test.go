package wire_test

import (
	"net/http/httptest"
	"testing"

	"podium/pkg/apiserver/wire"
)

func TestNegotiate(t *testing.T) {
	object := wire.Offer{As: []string{wire.Table, wire.PartialObjectMetadata}}
	for _, tc := range []struct {
		accept, agent string
		offer         wire.Offer
		want          string // "": 406
	}{
		{accept: "", want: "application/json"},
		{accept: "*/*", want: "application/json"},
		{accept: "application/*", want: "application/json"},
		{accept: "application/json", agent: "curl/8", want: "application/json pretty"},
		{accept: "application/yaml", want: "application/yaml"},
		{accept: "application/vnd.kubernetes.protobuf,application/json", want: "application/vnd.kubernetes.protobuf"},
		{accept: "application/json;q=0.5, application/yaml", want: "application/yaml"},
		{accept: "text/html, */*;q=0.1", want: "application/json"},
		{accept: "text/html", want: ""},
		{accept: "application/json;q=0", want: ""},
		{accept: "nonsense", want: ""},
		{accept: "application/json;as=Table;g=meta.k8s.io;v=v1", offer: object, want: "application/json as v1.Table"},
		{accept: "application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json", offer: object, want: "application/json as v1beta1.Table"},
		{accept: "application/json;as=Table;g=meta.k8s.io;v=v2,application/json", offer: object, want: "application/json"},
		{accept: "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", offer: object, want: ""},
		{accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", offer: object, want: "application/vnd.kubernetes.protobuf as v1.PartialObjectMetadata"},
		{accept: "application/json;as=Table;g=meta.k8s.io;v=v1", want: ""},
		{accept: "application/yaml", offer: wire.Offer{Stream: true}, want: ""},
		{accept: "application/json;stream=watch", offer: wire.Offer{Stream: true}, want: "application/json"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", tc.accept)
		r.Header.Set("User-Agent", tc.agent)
		f, err := wire.Negotiate(r, tc.offer)
		got := f.Media
		if f.As != nil {
			got += " as " + f.As.Version + "." + f.As.Kind
		}
		if f.Pretty {
			got += " pretty"
		}
		if err != nil {
			got = ""
		}
		if got != tc.want {
			t.Errorf("Accept %q: %q, want %q", tc.accept, got, tc.want)
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;as=Table;g=meta.k8s.io;v=v1,*/*;q=0.1")
	f.Fuzz(func(t *testing.T, accept string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", accept)
		if f, err := wire.Negotiate(r, wire.Offer{}); err == nil && (f.As != nil || f.Media == "") {
			t.Fatalf("%q: %+v", accept, f)
		}
	})
}
