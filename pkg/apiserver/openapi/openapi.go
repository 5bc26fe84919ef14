package openapi

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// Documents are the OpenAPI documents of the kinds with a Go type, as JSON. The
// functions must be safe for concurrent use; V3 returns nil for unknown paths.
type Documents struct {
	V2    func() []byte
	V3    func(path string) []byte // paths such as "api/v1" and "apis/apps/v1"
	Paths func() []string          // all paths of V3
}

// Server serves the documents below /openapi. It is safe for concurrent use.
type Server struct {
	docs   Documents
	scheme *scheme.Scheme
	log    *slog.Logger
	core   func() (tree, error)
	v2     *document            // of the kinds with a Go type
	v3     map[string]*document // of the kinds with a Go type, by path
	now    atomic.Pointer[published]

	mu     sync.Mutex // held while the documents are replaced
	kinds  []*registry.Kind
	remote map[string]Remote
}

// published are the documents of one set of kinds.
type published struct {
	groups map[string]*group // of kinds without a Go type, by name
	v2     *document
	v3     map[string]*document
	root   func() []byte // the index of v3
}

// group are the kinds without a Go type of one group. Their description is computed
// on first use.
type group struct {
	kinds []*registry.Kind
	added func() additions
	v3    map[string]*document // by path
}

// index lists the v3 documents with their URLs.
type index struct {
	Paths map[string]place `json:"paths"`
}

type place struct {
	URL string `json:"serverRelativeURL"`
}

// New returns a Server for the documents. It computes and encodes documents on first
// use, and logs kinds that cannot be described.
func New(docs Documents, s *scheme.Scheme, log *slog.Logger) *Server {
	out := &Server{docs: docs, scheme: s, log: log, v2: newDocument(docs.V2, nil, parseV2), v3: map[string]*document{}}
	out.core = sync.OnceValues(func() (tree, error) { return core(docs.V3) })
	for _, path := range docs.Paths() {
		out.v3[path] = newDocument(func() []byte { return docs.V3(path) }, nil, parseV3)
	}
	out.now.Store(&published{})
	out.SetKinds(nil)
	return out
}

func parseV2(text []byte) (proto.Message, error) { return openapiv2.ParseDocument(text) }
func parseV3(text []byte) (proto.Message, error) { return openapiv3.ParseDocument(text) }

// SetKinds replaces the kinds without a Go type in the documents by those among
// kinds. It ignores other kinds.
func (s *Server) SetKinds(kinds []*registry.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = kinds
	s.publishLocked()
}

// SetRemote replaces the documents of other servers, by the paths of group versions such
// as "apis/metrics.k8s.io/v1beta1". Those of v3 take precedence; v2 is merged, without
// paths that exist already.
func (s *Server) SetRemote(remote map[string]Remote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.EqualFunc(remote, s.remote, Remote.equal) {
		s.remote = remote
		s.publishLocked()
	}
}

func (s *Server) publishLocked() {
	of := map[string][]*registry.Kind{}
	for _, k := range s.kinds {
		if k.IsUntyped() {
			of[k.Group] = append(of[k.Group], k)
		}
	}
	before := s.now.Load()
	p := &published{groups: map[string]*group{}, v2: s.v2, v3: maps.Clone(s.v3)}
	for name, kinds := range of {
		g := before.groups[name]
		if g == nil || !slices.Equal(g.kinds, kinds) {
			g = s.newGroup(kinds)
		}
		p.groups[name] = g
		maps.Copy(p.v3, g.v3)
	}
	for path, r := range s.remote {
		if r.V3 != nil {
			p.v3[path] = newDocument(func() []byte { return r.V3 }, nil, parseV3)
		}
	}
	if len(p.groups) > 0 {
		p.v2 = newDocument(s.docs.V2, p.added, parseV2)
	}
	p.v2 = s.withRemote(p.v2, s.remote)
	p.root = sync.OnceValue(p.index)
	s.now.Store(p)
}

// newGroup returns the documents of the kinds of a group.
func (s *Server) newGroup(kinds []*registry.Kind) *group {
	g := &group{kinds: kinds, v3: map[string]*document{}}
	g.added = sync.OnceValue(func() additions {
		core, err := s.core()
		if err != nil {
			s.log.Error("describe a group for OpenAPI failed", "group", kinds[0].Group, "err", err)
			return additions{}
		}
		out, err := describe(s.scheme, kinds, core)
		if err != nil {
			s.log.Error("describe a group for OpenAPI failed", "group", kinds[0].Group, "err", err)
		}
		return out
	})
	for _, k := range kinds {
		for _, v := range k.Served() {
			for _, path := range []string{"apis/" + v.Group, groupPath(v.Kind)} {
				if g.v3[path] == nil {
					g.v3[path] = newDocument(func() []byte { return s.docs.V3(path) }, func() tree { return g.added().v3[path] }, parseV3)
				}
			}
		}
	}
	return g
}

// added returns the paths and definitions of all groups for OpenAPI v2.
func (p *published) added() tree {
	out := tree{"paths": tree{}, "definitions": tree{}}
	for _, g := range p.groups {
		for _, key := range []string{"paths", "definitions"} {
			if more, ok := g.added().v2[key].(tree); ok {
				maps.Copy(out[key].(tree), more)
			}
		}
	}
	return out
}

// index returns the index of the v3 documents.
func (p *published) index() []byte {
	in := index{map[string]place{}}
	for path, d := range p.v3 {
		in.Paths[path] = place{"/openapi/v3/" + path + "?hash=" + d.hash()}
	}
	text, _ := json.Marshal(in) // strings always encode
	return text
}

// V3 returns the OpenAPI v3 document of a path such as "api/v1" as JSON, or nil if
// the path has no document.
func (s *Server) V3(path string) []byte {
	if d := s.now.Load().v3[path]; d != nil {
		return d.load()
	}
	return nil
}

// newDocument returns base, which may be empty, with what added returns; parse converts
// its JSON to protobuf. added may be nil.
func newDocument(base func() []byte, added func() tree, parse func([]byte) (proto.Message, error)) *document {
	d := &document{load: base, parse: parse}
	if added != nil {
		d.load = sync.OnceValue(func() []byte { return added().onto(base()) })
	}
	return d
}

// document is one document. Its hash and its protobuf encoding are computed on
// first use.
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

// ServeHTTP answers with a document, or with the index at /openapi/v3.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil {
		wire.WriteError(w, r, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	path, docs := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/openapi/"), "/"), s.now.Load()
	switch path {
	case "v2":
		return write(w, r, docs.v2, "application/com.github.proto-openapi.spec.v2")
	case "v3":
		return wire.WriteText(w, r, http.StatusOK, "application/json", docs.root())
	}
	d := docs.v3[strings.TrimPrefix(path, "v3/")]
	if d == nil || !strings.HasPrefix(path, "v3/") {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false)
	}
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != d.hash() {
			http.Redirect(w, r, "/openapi/"+path+"?hash="+d.hash(), http.StatusMovedPermanently)
			return nil
		}
		// A URL with a hash always returns the same content.
		w.Header().Set("Cache-Control", "public, immutable, max-age=31536000")
	}
	return write(w, r, d, "application/com.github.proto-openapi.spec.v3")
}

// write answers in a media type that the client accepts. proto is the protobuf
// media type up to its version, which has two spellings.
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
