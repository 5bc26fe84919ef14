package openapi

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/wire"
)

// Documents are the published documents, as JSON.
type Documents struct {
	V2    func() []byte
	V3    func(path string) []byte // "api/v1", "apis/apps/v1"
	Paths func() []string          // of V3
}

// Server answers below /openapi.
type Server struct {
	v2   document
	v3   map[string]*document
	root []byte // the index of v3
}

// index lists the documents of version 3 and where they are.
type index struct {
	Paths map[string]place `json:"paths"`
}

type place struct {
	URL string `json:"serverRelativeURL"`
}

// New indexes the documents; their protobuf forms are made when asked for.
func New(docs Documents) (*Server, error) {
	s := &Server{v3: map[string]*document{}}
	s.v2.load = docs.V2
	s.v2.parse = func(text []byte) (proto.Message, error) { return openapiv2.ParseDocument(text) }
	in := index{map[string]place{}}
	for _, path := range docs.Paths() {
		d := &document{
			load:  func() []byte { return docs.V3(path) },
			parse: func(text []byte) (proto.Message, error) { return openapiv3.ParseDocument(text) },
		}
		s.v3[path] = d
		in.Paths[path] = place{"/openapi/v3/" + path + "?hash=" + d.hash()}
	}
	var err error
	if s.root, err = json.Marshal(in); err != nil {
		return nil, fmt.Errorf("index the OpenAPI documents: %w", err)
	}
	return s, nil
}

// document is one document and, once asked for, its protobuf form.
type document struct {
	load  func() []byte
	parse func([]byte) (proto.Message, error)

	once  sync.Once
	proto []byte
	err   error

	sum    sync.Once
	hashed string
}

func (d *document) hash() string {
	d.sum.Do(func() { d.hashed = strings.ToUpper(fmt.Sprintf("%x", sha512.Sum512(d.load()))) })
	return d.hashed
}

func (d *document) protobuf() ([]byte, error) {
	d.once.Do(func() {
		var m proto.Message
		if m, d.err = d.parse(d.load()); d.err == nil {
			d.proto, d.err = proto.Marshal(m)
		}
	})
	return d.proto, d.err
}

// ServeHTTP answers with a document.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		wire.WriteError(w, r, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	path := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/openapi/"), "/")
	switch path {
	case "v2":
		return write(w, r, &s.v2, "application/com.github.proto-openapi.spec.v2")
	case "v3":
		return wire.WriteText(w, r, http.StatusOK, "application/json", s.root)
	}
	d := s.v3[strings.TrimPrefix(path, "v3/")]
	if d == nil || !strings.HasPrefix(path, "v3/") {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false)
	}
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != d.hash() {
			http.Redirect(w, r, "/openapi/"+path+"?hash="+d.hash(), http.StatusMovedPermanently)
			return nil
		}
		// What is asked for by its hash never changes.
		w.Header().Set("Cache-Control", "public, immutable, max-age=31536000")
	}
	return write(w, r, d, "application/com.github.proto-openapi.spec.v3")
}

// write answers in the form the client asks for. proto is the protobuf media
// type up to its version, which has two spellings.
func write(w http.ResponseWriter, r *http.Request, d *document, proto string) error {
	w.Header().Set("ETag", `"`+d.hash()+`"`)
	w.Header().Add("Vary", "Accept")
	if r.Header.Get("If-None-Match") == `"`+d.hash()+`"` {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	accept := r.Header.Get("Accept")
	for part := range strings.SplitSeq(accept, ",") {
		media, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		switch media {
		case proto + "@v1.0+protobuf", proto + ".v1.0+protobuf":
			body, err := d.protobuf()
			if err != nil {
				return apierrors.NewInternalError(err)
			}
			return wire.WriteText(w, r, http.StatusOK, proto+".v1.0+protobuf", body)
		case "", "*/*", "application/*", "application/json":
			return wire.WriteText(w, r, http.StatusOK, "application/json", d.load())
		}
	}
	return wire.NotAcceptable([]string{"application/json", proto + ".v1.0+protobuf"})
}
