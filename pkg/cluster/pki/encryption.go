package pki

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"podium/pkg/cluster/files"
)

// encryptionConfig encrypts Secrets with secretbox: of the providers without a
// key management service, upstream names it as the strong one whose key needs
// no regular rotation. The identity provider allows reading what was stored
// unencrypted.
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

// EncryptionConfig creates file with a kube-apiserver encryption configuration
// and a random key. It does not change an existing file.
func EncryptionConfig(file string) error {
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("make an encryption key: %w", err)
	}
	_, err := files.Write(file, fmt.Appendf(nil, encryptionConfig, base64.StdEncoding.EncodeToString(key)), 0o600)
	return err
}
