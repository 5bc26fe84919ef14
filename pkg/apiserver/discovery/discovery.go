package discovery

import (
	"iter"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/registry"
	"podium/pkg/apiserver/wire"
	"podium/pkg/storage/pieces"
)

// Config configures Discovery. All fields are required.
type Config struct {
	Verbs            func(k *registry.Kind) []string        // of a resource
	SubresourceVerbs func(s *registry.Subresource) []string // of a subresource; if empty, it is not listed
	Address          string                                 // host:port of this server for clients

	// Priority returns the priorities of a group version of this server: of its group,
	// and within the group. custom is set if the kind has no Go type.
	Priority func(gv schema.GroupVersion, custom bool) (group, version int32)
}

// Discovery serves the discovery documents below /api and /apis. The documents are
// encoded when the kinds or the server addresses change. It is safe for concurrent
// use.
type Discovery struct {
	cfg     Config
	now     atomic.Pointer[documents]
	servers atomic.Pointer[page] // /api

	mu        sync.Mutex
	addresses []string // of the API servers
	kinds     []*registry.Kind
	remote    []Remote
}

// documents are the discovery documents of one set of kinds.
type documents struct {
	core       []string        // the versions of the core group
	pages      map[string]page // by path
	aggregated map[string]map[string]page
}

// page is one document.
type page struct {
	gvk  schema.GroupVersionKind
	obj  wire.Encoded
	etag string // of aggregated documents, else ""
}

// New returns a Discovery without kinds.
func New(cfg Config) *Discovery {
	d := &Discovery{cfg: cfg, addresses: []string{cfg.Address}}
	d.now.Store(&documents{})
	return d
}

// SetKinds replaces the served kinds. On error, it keeps the previous ones. The
// verbs of a kind must not change afterwards.
func (d *Discovery) SetKinds(kinds []*registry.Kind) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.publishLocked(kinds, d.remote)
}

// SetRemote replaces the group versions that other servers serve. On error, it keeps the
// previous ones.
func (d *Discovery) SetRemote(remote []Remote) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.publishLocked(d.kinds, remote)
}

func (d *Discovery) publishLocked(kinds []*registry.Kind, remote []Remote) error {
	docs, err := documentsOf(groupsOf(d.cfg, kinds, remote))
	if err != nil {
		return err
	}
	d.kinds, d.remote = kinds, remote
	d.now.Store(docs)
	d.listServersLocked()
	return nil
}

func documentsOf(groups []*group) (*documents, error) {
	d := &documents{pages: map[string]page{}, aggregated: map[string]map[string]page{}}

	list := &metav1.APIGroupList{Groups: []metav1.APIGroup{}}
	for _, g := range groups {
		for _, v := range g.versions {
			if v.remote == nil { // the other server serves this document
				d.add(v.path(g.name), "APIResourceList", v.plain(g.name))
			}
		}
		if g.name == "" {
			d.core = g.names()
			d.pages["/api"] = page{}
			continue
		}
		one := g.plain()
		list.Groups = append(list.Groups, *one)
		d.add("/apis/"+g.name, "APIGroup", one)
	}
	d.add("/apis", "APIGroupList", list)
	return d, d.aggregate(groups)
}

// SetServers replaces the addresses, as host:port, at which clients reach the API
// servers.
func (d *Discovery) SetServers(addresses []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addresses = addresses
	d.listServersLocked()
}

func (d *Discovery) listServersLocked() {
	versions := &metav1.APIVersions{Versions: d.now.Load().core}
	for _, a := range d.addresses {
		versions.ServerAddressByClientCIDRs = append(versions.ServerAddressByClientCIDRs, metav1.ServerAddressByClientCIDR{ClientCIDR: "0.0.0.0/0", ServerAddress: a})
	}
	d.servers.Store(&page{gvk: schema.GroupVersionKind{Version: "v1", Kind: "APIVersions"}, obj: fixed(versions)})
}

func (d *documents) add(path, kind string, obj runtime.Object) {
	d.pages[path] = page{gvk: schema.GroupVersionKind{Version: "v1", Kind: kind}, obj: fixed(obj)}
}

// Paths returns the paths of all documents, in no particular order.
func (d *Discovery) Paths() iter.Seq[string] { return maps.Keys(d.now.Load().pages) }

// Serves reports whether path is that of a discovery document. It ignores a
// trailing slash.
func (d *Discovery) Serves(path string) bool {
	_, ok := d.now.Load().pages[trim(path)]
	return ok
}

func trim(path string) string {
	if len(path) > 1 {
		return strings.TrimSuffix(path, "/")
	}
	return path
}

const aggregatedKind = "APIGroupDiscoveryList"

// ServeHTTP answers with a document, in the aggregated form if the client accepts
// it.
func (d *Discovery) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := d.serve(w, r); err != nil {
		wire.WriteError(w, r, err)
	}
}

func (d *Discovery) serve(w http.ResponseWriter, r *http.Request) error {
	path, docs := trim(r.URL.Path), d.now.Load()
	p, ok := docs.pages[path]
	if !ok {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "", 0, false)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, r.Method, schema.GroupResource{}, "", "", 0, false)
	}
	offer := wire.Offer{As: []string{"none"}}
	both := docs.aggregated[path]
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

// parameterized adds the parameters g, v and as to the content type, as clients
// expect for aggregated documents.
type parameterized struct {
	http.ResponseWriter
	suffix string
}

func (p *parameterized) WriteHeader(code int) {
	h := p.Header()
	h.Set("Content-Type", h.Get("Content-Type")+p.suffix)
	p.ResponseWriter.WriteHeader(code)
}

// fixed encodes a document once.
func fixed(obj runtime.Object) wire.Encoded {
	f := &document{}
	f.json, f.jsonErr = wire.Bare(obj).JSON()
	f.proto, f.protoErr = wire.Bare(obj).Proto()
	return f
}

type document struct {
	json, proto       pieces.Text
	jsonErr, protoErr error
}

func (d *document) JSON() (pieces.Text, error)  { return d.json, d.jsonErr }
func (d *document) Proto() (pieces.Text, error) { return d.proto, d.protoErr }
