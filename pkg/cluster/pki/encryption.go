package pki

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// encryptionConfig keeps Secrets encrypted. Of the providers without a key
// management service upstream names secretbox as the strong one whose key does
// not wear out. What was stored before there was a key can still be read.
const encryptionConfig = `# Made when the cluster was created. Whoever has this file can read the Secrets
# in a copy of the cluster's data: keep it apart from backups, but keep it, for
# without it they cannot be read at all.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources:
  - secrets
  providers:
  - secretbox:
      keys:
      - name: key1
        secret: %s
  - identity: {}
`

// EncryptionConfig makes sure that file holds the configuration that a
// kube-apiserver encrypts its data with. One that exists stays as it is.
func EncryptionConfig(file string) error {
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make an encryption key: %w", err)
	}
	return writeSecret(file, fmt.Appendf(nil, encryptionConfig, base64.StdEncoding.EncodeToString(key)))
}

// writeSecret writes a file that only its owner may read, in one step and to
// the disk: what is encrypted must not outlive its key.
func writeSecret(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	next, err := os.OpenFile(file+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err := errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
