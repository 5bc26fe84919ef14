// Command floor is what any API server written in Go pays at least: it keeps encoded
// pods in memory and answers GET, LIST and watch with these bytes, by net/http over TLS
// and HTTP/2. It has no storage, identities, permissions, validation, limits or log.
// Protobuf only.
package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const media = "application/vnd.kubernetes.protobuf"

func main() {
	port := flag.Int("port", 6443, "port to serve TLS on, at 127.0.0.1")
	owned := flag.Int("owned", 0, "bytes of managedFields that each pod gets, as the other servers track them")
	flag.Parse()
	s := &server{owned: *owned, pods: map[string]*pod{}, byNode: map[string][]*pod{}, byShard: map[string][]*pod{}, watches: map[*watch]bool{}}
	cert, err := selfSigned()
	if err != nil {
		log.Fatal(err)
	}
	h := &http.Server{Addr: fmt.Sprintf("127.0.0.1:%d", *port), Handler: s, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	log.Fatal(h.ListenAndServeTLS("", ""))
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

type pod struct {
	message []byte // without envelope; replaced, never changed
	node    string
}

type server struct {
	owned int // bytes

	mu       sync.RWMutex
	revision int
	pods     map[string]*pod // by path
	order    []*pod
	byNode   map[string][]*pod
	byShard  map[string][]*pod
	watches  map[*watch]bool
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := error(nil)
	switch q := r.URL.Query(); {
	case r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/pods"):
		err = s.create(w, r)
	case r.Method == "POST":
		w.WriteHeader(http.StatusCreated) // a namespace
	case r.Method == "PATCH":
		err = s.patch(w, r)
	case q.Has("watch"):
		err = s.watch(w, r)
	case r.URL.Path == "/api/v1/pods":
		err = s.list(w, q.Get("labelSelector"), q.Get("fieldSelector"), q.Get("limit"), q.Get("continue"))
	case r.URL.Path != "/readyz":
		err = s.get(w, r.URL.Path)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// head returns what precedes a message of size bytes in an envelope.
func head(kind string, size int) []byte {
	types := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "v1")
	types = protowire.AppendString(protowire.AppendTag(types, 2, protowire.BytesType), kind)
	out := protowire.AppendBytes(protowire.AppendTag([]byte("k8s\x00"), 1, protowire.BytesType), types)
	return protowire.AppendVarint(protowire.AppendTag(out, 2, protowire.BytesType), uint64(size))
}

func answer(w http.ResponseWriter, kind string, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	w.Header().Set("Content-Type", media)
	buffer := buffers.Get().(*bufio.Writer)
	defer buffers.Put(buffer)
	buffer.Reset(w)
	buffer.Write(head(kind, size))
	for _, p := range parts {
		buffer.Write(p)
	}
	return buffer.Flush()
}

// buffers join what is written to a connection.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 128<<10) }}

func (s *server) create(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var u runtime.Unknown
	var p corev1.Pod
	if err := u.Unmarshal(body[4:]); err != nil {
		return err
	}
	if err := p.Unmarshal(u.Raw); err != nil {
		return err
	}
	p.UID, p.CreationTimestamp = "6f1c0a52-1d7e-4f0e-9b57-0d6b8f1c2a3e", metav1.Now()
	if s.owned > 0 {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: &metav1.FieldsV1{Raw: bytes.Repeat([]byte("f"), s.owned)}}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	p.ResourceVersion = strconv.Itoa(s.revision)
	raw, err := p.Marshal()
	if err != nil {
		return err
	}
	e := &pod{message: raw, node: p.Spec.NodeName}
	s.pods[r.URL.Path+"/"+p.Name] = e
	s.order = append(s.order, e)
	s.byNode["spec.nodeName="+e.node] = append(s.byNode["spec.nodeName="+e.node], e)
	shard := "shard=" + p.Labels["shard"]
	s.byShard[shard] = append(s.byShard[shard], e)
	w.WriteHeader(http.StatusCreated)
	return answer(w, "Pod", raw)
}

func (s *server) get(w http.ResponseWriter, path string) error {
	s.mu.RLock()
	e, ok := s.pods[path]
	var message []byte
	if ok {
		message = e.message
	}
	s.mu.RUnlock()
	if !ok {
		return fmt.Errorf("%s does not exist", path)
	}
	return answer(w, "Pod", message)
}

func (s *server) list(w http.ResponseWriter, label, field, limit, token string) error {
	s.mu.RLock()
	pods := s.order
	if label != "" {
		pods = s.byShard[label]
	}
	if field != "" {
		pods = s.byNode[field]
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revision)}
	if n, err := strconv.Atoi(limit); err == nil {
		from, _ := strconv.Atoi(token)
		if until := from + n; until < len(pods) {
			pods, meta.Continue = pods[:until], strconv.Itoa(until)
		}
		pods = pods[from:]
	}
	m, err := meta.Marshal()
	if err != nil {
		return err
	}
	parts := [][]byte{protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), m)}
	for _, p := range pods {
		parts = append(parts, protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.BytesType), uint64(len(p.message))), p.message)
	}
	s.mu.RUnlock()
	return answer(w, "PodList", parts...)
}

// patch changes a status and tells the watches.
func (s *server) patch(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	message, err := s.patched(strings.TrimSuffix(r.URL.Path, "/status"), body)
	if err != nil {
		return err
	}
	return answer(w, "Pod", message)
}

func (s *server) patched(path string, body []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.pods[path]
	if !ok {
		return nil, fmt.Errorf("%s does not exist", path)
	}
	var p corev1.Pod
	if err := p.Unmarshal(e.message); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	s.revision++
	p.ResourceVersion = strconv.Itoa(s.revision)
	message, err := p.Marshal()
	if err != nil {
		return nil, err
	}
	e.message = message
	f := frame(message)
	for watch := range s.watches {
		if watch.field == "" || watch.field == "spec.nodeName="+e.node {
			watch.send(f)
		}
	}
	return message, nil
}

// frame returns an event of a watch: its length and a WatchEvent.
func frame(message []byte) []byte {
	object := append(head("Pod", len(message)), message...)
	event := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "MODIFIED")
	raw := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), object)
	event = protowire.AppendBytes(protowire.AppendTag(event, 2, protowire.BytesType), raw)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// watch is one stream of events. Those that it has not written yet wait in frames.
type watch struct {
	field  string
	mu     sync.Mutex
	frames [][]byte
	wake   chan struct{}
}

func (w *watch) send(f []byte) {
	w.mu.Lock()
	w.frames = append(w.frames, f)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) error {
	own := &watch{field: r.URL.Query().Get("fieldSelector"), wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.watches[own] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watches, own)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", media+";stream=watch")
	flush := http.NewResponseController(w)
	for {
		if err := flush.Flush(); err != nil {
			return nil
		}
		select {
		case <-own.wake:
		case <-r.Context().Done():
			return nil
		}
		own.mu.Lock()
		frames := own.frames
		own.frames = nil
		own.mu.Unlock()
		if _, err := w.Write(bytes.Join(frames, nil)); err != nil {
			return nil
		}
	}
}
