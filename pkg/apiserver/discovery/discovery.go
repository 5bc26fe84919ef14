package discovery

import (
	"iter"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/wire"
)

// Config is what there is to discover.
type Config struct {
	Kinds            []*registry.Kind
	Verbs            func(k *registry.Kind) []string        // of a resource
	SubresourceVerbs func(s *registry.Subresource) []string // of a subresource
	Address          string                                 // host:port that clients reach the server at
}

// Discovery answers below /api and /apis everything that is not a resource. All
// answers are made once, when it is built; only where the servers are changes.
type Discovery struct {
	core       []string             // the versions at /api
	servers    atomic.Pointer[page] // /api
	pages      map[string]page      // by path
	aggregated map[string]map[string]page
}

// page is one document.
type page struct {
	gvk  schema.GroupVersionKind
	obj  wire.Encoded
	etag string // "": none
}

// New makes the documents.
func New(cfg Config) (*Discovery, error) {
	d := &Discovery{pages: map[string]page{}, aggregated: map[string]map[string]page{}}
	groups := groupsOf(cfg)

	list := &metav1.APIGroupList{Groups: []metav1.APIGroup{}}
	for _, g := range groups {
		for _, v := range g.versions {
			d.add(v.path(g.name), "APIResourceList", v.plain(g.name))
		}
		if g.name == "" {
			d.core = g.names()
			d.pages["/api"] = page{}
			d.SetServers([]string{cfg.Address})
			continue
		}
		one := g.plain()
		list.Groups = append(list.Groups, *one)
		d.add("/apis/"+g.name, "APIGroup", one)
	}
	d.add("/apis", "APIGroupList", list)
	return d, d.aggregate(groups)
}

// SetServers says where clients reach the cluster's servers, host:port each.
func (d *Discovery) SetServers(addresses []string) {
	versions := &metav1.APIVersions{Versions: d.core}
	for _, a := range addresses {
		versions.ServerAddressByClientCIDRs = append(versions.ServerAddressByClientCIDRs, metav1.ServerAddressByClientCIDR{ClientCIDR: "0.0.0.0/0", ServerAddress: a})
	}
	d.servers.Store(&page{gvk: schema.GroupVersionKind{Version: "v1", Kind: "APIVersions"}, obj: fixed(versions)})
}

func (d *Discovery) add(path, kind string, obj runtime.Object) {
	d.pages[path] = page{gvk: schema.GroupVersionKind{Version: "v1", Kind: kind}, obj: fixed(obj)}
}

// Paths are all documents'.
func (d *Discovery) Paths() iter.Seq[string] { return maps.Keys(d.pages) }

// Serves says whether a path is a discovery document.
func (d *Discovery) Serves(path string) bool {
	_, ok := d.pages[trim(path)]
	return ok
}

func trim(path string) string {
	if len(path) > 1 {
		return strings.TrimSuffix(path, "/")
	}
	return path
}

const aggregatedKind = "APIGroupDiscoveryList"

// ServeHTTP answers with a document, in the aggregated form where the client
// accepts it.
func (d *Discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := d.serve(w, r); err != nil {
		wire.WriteError(w, r, err)
	}
}

func (d *Discovery) serve(w http.ResponseWriter, r *http.Request) error {
	path := trim(r.URL.Path)
	p, ok := d.pages[path]
	if !ok {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "", "", 0, false)
	}
	offer := wire.Offer{As: []string{"none"}}
	both := d.aggregated[path]
	if both != nil {
		w.Header().Add("Vary", "Accept")
		offer = wire.Offer{As: []string{aggregatedKind}, Groups: []string{"apidiscovery.k8s.io/v2", "apidiscovery.k8s.io/v2beta1"}}
	}
	f, err := wire.Negotiate(r, offer)
	if err != nil {
		return err
	}
	if path == "/api" {
		p = *d.servers.Load()
	}
	if f.As == nil {
		return wire.WriteObject(w, r, http.StatusOK, f, p.gvk, p.obj)
	}
	p = both[f.As.Version]
	w.Header().Set("ETag", p.etag)
	if r.Header.Get("If-None-Match") == p.etag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return wire.WriteObject(&parameterized{ResponseWriter: w, suffix: ";g=" + f.As.Group + ";v=" + f.As.Version + ";as=" + f.As.Kind}, r, http.StatusOK, f, p.gvk, p.obj)
}

// parameterized writes the content type as the client knows it from its Accept
// header.
type parameterized struct {
	http.ResponseWriter
	suffix string
}

func (p *parameterized) WriteHeader(code int) {
	h := p.Header()
	h.Set("Content-Type", h.Get("Content-Type")+p.suffix)
	p.ResponseWriter.WriteHeader(code)
}

// fixed keeps the encodings of a document that never changes.
func fixed(obj runtime.Object) wire.Encoded {
	f := &document{}
	f.json, f.jsonErr = wire.Bare(obj).JSON()
	f.proto, f.protoErr = wire.Bare(obj).Proto()
	return f
}

type document struct {
	json, proto       []byte
	jsonErr, protoErr error
}

func (d *document) JSON() ([]byte, error)  { return d.json, d.jsonErr }
func (d *document) Proto() ([]byte, error) { return d.proto, d.protoErr }
