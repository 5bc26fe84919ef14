package images

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Records stores in files which images the kubelet has pulled and with which
// credentials, in upstream's format and directories:
//
//	pulling/sha256-…  ImagePullIntent: written before a pull, gone when its outcome is known
//	pulled/sha256-…   ImagePulledRecord: one for each image id
//
// A file is complete or does not exist, even after a crash. The kubelet did not
// pull an image that has neither file. Records is safe for concurrent use.
type Records struct {
	dir string
	log *slog.Logger

	mu      sync.Mutex
	pulling map[string]int // pulls under way, by canonical name
}

// apiVersion is the API version of the files.
const apiVersion = "kubelet.config.k8s.io/v1beta1"

// maxSecrets bounds the secrets that are added to a record without a pull.
const maxSecrets = 100

type pullIntent struct {
	metav1.TypeMeta `json:",inline"`
	Image           string `json:"image"`
}

type pulledRecord struct {
	metav1.TypeMeta `json:",inline"`
	LastUpdatedTime metav1.Time `json:"lastUpdatedTime"`
	ImageRef        string      `json:"imageRef"`
	// CredentialMapping is keyed by the image's full name without tag and digest.
	CredentialMapping map[string]pullCredentials `json:"credentialMapping,omitempty"`
}

// pullCredentials are the credentials with which a name of the image was pulled.
type pullCredentials struct {
	Secrets []SecretRecord `json:"kubernetesSecrets,omitempty"`
	// NodePodsAccessible: pulled without credentials; every pod may use it.
	NodePodsAccessible bool `json:"nodePodsAccessible,omitempty"`
}

// SecretRecord identifies a pull secret and, by a hash, its credentials.
type SecretRecord struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	CredentialHash string `json:"credentialHash"`
}

func (s *SecretRecord) sameSecret(other *SecretRecord) bool {
	return s.UID == other.UID && s.Namespace == other.Namespace && s.Name == other.Name
}

// NewRecords returns the Records in dir. The directory need not exist.
func NewRecords(dir string, log *slog.Logger) *Records {
	return &Records{dir: dir, log: log, pulling: map[string]int{}}
}

// recover creates records for the pulls of which an earlier kubelet did not learn
// the outcome, if their images exist. The records have no credentials, so that
// the next pod needs its own. find returns an image's id, "" if it is absent.
func (r *Records) recover(ctx context.Context, find func(ctx context.Context, image string) (string, error)) {
	for _, file := range r.files("pulling") {
		var intent pullIntent
		if err := readJSON(file, &intent); err != nil {
			r.log.Warn("read image pull intent failed", "file", file, "error", err)
			continue
		}
		id, err := find(ctx, intent.Image)
		if err == nil && id == "" {
			continue // the runtime may still be pulling it
		}
		if err == nil {
			err = r.merge(intent.Image, id, nil)
		}
		if err == nil {
			err = os.Remove(file)
		}
		if err != nil {
			r.log.Warn("resolve image pull intent failed", "image", intent.Image, "error", err)
		}
	}
}

// begin records the start of a pull. The caller must call pulled or failed next.
func (r *Records) begin(image string) error {
	name := canonical(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	err := writeJSON(r.file("pulling", name), pullIntent{TypeMeta: metav1.TypeMeta{Kind: "ImagePullIntent", APIVersion: apiVersion}, Image: name})
	if err == nil {
		r.pulling[name]++
	}
	return err
}

// pulled records a successful pull with a secret's credentials; a nil secret means
// without credentials. If the record cannot be written, the intent remains.
func (r *Records) pulled(image, id string, secret *SecretRecord) {
	creds := &pullCredentials{NodePodsAccessible: true}
	if secret != nil {
		creds = &pullCredentials{Secrets: []SecretRecord{*secret}}
	}
	err := r.merge(image, id, creds)
	if err != nil {
		r.log.Error("record image pull failed", "image", image, "error", err)
	}
	r.end(image, err == nil)
}

// failed records a failed pull. certain means that the runtime has given up; if
// not, the intent remains, since the image may still arrive.
func (r *Records) failed(image string, certain bool) { r.end(image, certain) }

func (r *Records) end(image string, known bool) {
	name := canonical(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulling[name]--
	if r.pulling[name] > 0 {
		return
	}
	delete(r.pulling, name)
	if !known {
		return
	}
	if err := os.Remove(r.file("pulling", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("remove image pull intent failed", "image", image, "error", err)
	}
}

// lookup returns whether the kubelet has pulled an image or is pulling it, and the
// credentials with which its name was pulled. For a record that it cannot read it
// returns no credentials.
func (r *Records) lookup(image, id string) (pulledByKubelet bool, creds pullCredentials) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.readLocked(id)
	switch {
	case err == nil:
		return true, record.CredentialMapping[repository(image)]
	case !errors.Is(err, fs.ErrNotExist):
		r.log.Warn("read image pull record failed", "image", image, "error", err)
		return true, pullCredentials{}
	}
	_, err = os.Lstat(r.file("pulling", canonical(image)))
	return !errors.Is(err, fs.ErrNotExist), pullCredentials{}
}

// known reports whether an image was pulled with one of a pod's secrets: the same
// secret or the same credentials. If only one of the two matches, known adds the
// secret to the record.
func (r *Records) known(image, id string, creds pullCredentials, secrets []SecretRecord) bool {
	for i := range secrets {
		s := &secrets[i]
		match := slices.IndexFunc(creds.Secrets, func(c SecretRecord) bool { return c.sameSecret(s) || c.CredentialHash == s.CredentialHash })
		if match < 0 {
			continue
		}
		if !slices.Contains(creds.Secrets, *s) && len(creds.Secrets) < maxSecrets {
			if err := r.merge(image, id, &pullCredentials{Secrets: []SecretRecord{*s}}); err != nil {
				r.log.Warn("update image pull record failed", "image", image, "error", err)
			}
		}
		return true
	}
	return false
}

// merge adds creds to the record of an image. If creds is nil, it only creates a
// missing record.
func (r *Records) merge(image, id string, creds *pullCredentials) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.readLocked(id)
	if err != nil {
		record = &pulledRecord{TypeMeta: metav1.TypeMeta{Kind: "ImagePulledRecord", APIVersion: apiVersion}, ImageRef: id}
	} else if creds == nil {
		return nil
	}
	if creds != nil {
		if record.CredentialMapping == nil {
			record.CredentialMapping = map[string]pullCredentials{}
		}
		record.CredentialMapping[repository(image)] = record.CredentialMapping[repository(image)].with(creds)
	}
	record.LastUpdatedTime = metav1.Now()
	return writeJSON(r.file("pulled", id), record)
}

// with returns p with more added. New credentials of a secret replace old ones.
func (p pullCredentials) with(more *pullCredentials) pullCredentials {
	if p.NodePodsAccessible || more.NodePodsAccessible {
		return pullCredentials{NodePodsAccessible: true}
	}
	out := slices.DeleteFunc(slices.Clone(p.Secrets), func(s SecretRecord) bool {
		return slices.ContainsFunc(more.Secrets, func(m SecretRecord) bool { return m.sameSecret(&s) })
	})
	return pullCredentials{Secrets: append(out, more.Secrets...)}
}

// Prune removes the records of images that are not in ids, unless the record was
// updated at or after since. It logs errors.
func (r *Records) Prune(ids []string, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, file := range r.files("pulled") {
		var record pulledRecord
		err := readJSON(file, &record)
		if err == nil && (slices.Contains(ids, record.ImageRef) || !record.LastUpdatedTime.Time.Before(since)) {
			continue
		}
		if err == nil {
			err = os.Remove(file)
		}
		if err != nil {
			r.log.Warn("remove image pull record failed", "file", file, "error", err)
		}
	}
}

func (r *Records) readLocked(id string) (*pulledRecord, error) {
	record := &pulledRecord{}
	err := readJSON(r.file("pulled", id), record)
	if err == nil && record.ImageRef != id {
		err = fmt.Errorf("it is of image %q", record.ImageRef)
	}
	return record, err
}

func (r *Records) file(kind, key string) string {
	return filepath.Join(r.dir, kind, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(key))))
}

func (r *Records) files(kind string) []string {
	all, _ := filepath.Glob(filepath.Join(r.dir, kind, "sha256-*")) // the pattern is valid
	return slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, temporary) })
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

const temporary = ".tmp"

// writeJSON replaces a file atomically and durably: after a power failure it has
// the old or the new content.
func writeJSON(file string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file+temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file+temporary))
	}
	if err := os.Rename(file+temporary, file); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
