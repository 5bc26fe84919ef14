package machine

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/bootstraptoken"
)

// certsSecret holds what all control planes have in common, encrypted: who
// reads it has nothing without the key, which is only printed. It goes with
// the token that is its owner.
const certsSecret = "podium-certs"

// certsTTL is how long a control plane may join by what was uploaded.
const certsTTL = 2 * time.Hour

// shared are the files, below pkiDir, that all control planes have in common.
var shared = []string{"ca.crt", "ca.key", revokedFile, kubeletCA + ".crt", kubeletCA + ".key", kubeletBundle, "etcd/ca.crt", "etcd/ca.key", "sa.key", "sa.pub", encryptionFile}

// sharedFiles are those of this cluster.
func (c *Config) sharedFiles() []string {
	if c.Cloud == "" {
		return shared
	}
	return append(slices.Clone(shared), cloudFile)
}

// sharedKey is a file's key in the Secret, where no slash may be.
func sharedKey(name string) string { return strings.ReplaceAll(name, "/", "-") }

// certificateKey is what opens the uploaded files.
type certificateKey [32]byte

func newCertificateKey() (k certificateKey, err error) {
	_, err = rand.Read(k[:])
	return k, err
}

func (k certificateKey) text() string { return hex.EncodeToString(k[:]) }

// parseCertificateKey does not repeat the key in its error.
func parseCertificateKey(text string) (k certificateKey, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(k) {
		return k, errors.New("the certificate key is 64 hexadecimal digits, as podium certs upload prints them on a control plane's machine")
	}
	return certificateKey(raw), nil
}

func (k certificateKey) cipher() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal encrypts a file. Its name is part of it: files cannot be exchanged.
func (k certificateKey) seal(name string, data []byte) ([]byte, error) {
	c, err := k.cipher()
	if err != nil {
		return nil, err
	}
	return c.Seal(nil, nil, data, []byte(name)), nil
}

var errWrongKey = errors.New("the certificate key does not open what was uploaded: it is mistyped, or a later podium certs upload has replaced it; run that again on a control plane's machine, and the command that it prints here")

func (k certificateKey) open(name string, sealed []byte) ([]byte, error) {
	c, err := k.cipher()
	if err != nil {
		return nil, err
	}
	data, err := c.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return nil, errWrongKey
	}
	return data, nil
}

// UploadCertificates shares this control plane's keys with those that are to
// join, for two hours, and prints the command by which they do.
func UploadCertificates(ctx context.Context, cfg Config, host Host) error {
	m, err := recall(cfg, host)
	if err != nil {
		return err
	}
	command, err := m.uploadCertificates(ctx)
	if err == nil {
		fmt.Fprintln(cfg.Out, command)
	}
	return err
}

func (m *machine) uploadCertificates(ctx context.Context) (command string, err error) {
	cl, err := m.admin()
	if err != nil {
		return "", err
	}
	key, err := newCertificateKey()
	if err != nil {
		return "", err
	}
	data, err := m.sealed(key)
	if err != nil {
		return "", err
	}
	spec, err := TokenOptions{TTL: certsTTL, Description: "for control planes; the Secret " + certsSecret + " goes with it"}.spec(m.Now())
	if err != nil {
		return "", err
	}
	secrets := client.For[*corev1.Secret](cl).In(systemNamespace)
	token, err := secrets.Create(ctx, spec.ToSecret())
	if err != nil {
		return "", fmt.Errorf("make a token for the next control plane: %w", err)
	}
	yes := true
	err = ensure(ctx, secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: certsSecret, Namespace: systemNamespace, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Secret", Name: token.Name, UID: token.UID, BlockOwnerDeletion: &yes, Controller: &yes},
		}},
		Data: data,
	})
	if err != nil {
		return "", fmt.Errorf("store Secret %s: %w", certsSecret, err)
	}
	who := []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: nodeTokenGroup}}
	if err := grantRead(ctx, cl, systemNamespace, "podium:control-plane-certs", "secrets", certsSecret, who); err != nil {
		return "", err
	}
	join, err := m.joinCommand(ctx, cl)
	if err != nil {
		return "", err
	}
	return piped(join+" --control-plane --certificate-key-file -", spec.Token.String(), key.text()), nil
}

// sealed reads the shared files and encrypts them.
func (m *machine) sealed(key certificateKey) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range m.sharedFiles() {
		data, err := os.ReadFile(m.at(pkiDir, name))
		if err != nil {
			return nil, fmt.Errorf("read what control planes share (this is done on a control plane's machine): %w", err)
		}
		if out[sharedKey(name)], err = key.seal(name, data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fetchShared reads the shared files, by the token, and decrypts them. What a
// run before has brought is not asked for again: it may have gone meanwhile.
func (j *joining) fetchShared(ctx context.Context) error {
	if j.hasShared() {
		return nil
	}
	cl, err := j.tokenClient()
	if err != nil {
		return err
	}
	defer cl.CloseIdle()
	secret, err := client.For[*corev1.Secret](cl).In(bootstraptoken.Namespace).Get(ctx, certsSecret)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return errors.New("the cluster does not share its keys at present (it does for two hours): on a control plane's machine run podium certs upload, and here the command that it prints")
	}
	if err != nil {
		return fmt.Errorf("read the keys that control planes share: %w", err)
	}
	files := map[string][]byte{}
	for _, name := range j.sharedFiles() {
		if secret.Data[sharedKey(name)] == nil {
			return fmt.Errorf("the uploaded keys lack %s: a control plane of an earlier version has uploaded them; upgrade it, and run podium certs upload there again", name)
		}
		if files[name], err = j.key.open(name, secret.Data[sharedKey(name)]); err != nil {
			return err
		}
	}
	if string(files["ca.crt"]) != string(j.found.ca) {
		return errors.New("the uploaded keys are those of another authority than the cluster's: podium certs upload on a control plane's machine, then again")
	}
	j.shared = files
	return nil
}

func (j *joining) hasShared() bool {
	for _, name := range j.sharedFiles() {
		if _, err := os.Stat(j.at(pkiDir, name)); err != nil {
			return false
		}
	}
	return true
}

// writeShared writes the files, certificates last: a key alone is no authority,
// so that a run that ends in between leaves nothing that looks whole.
func (j *joining) writeShared() error {
	if err := os.MkdirAll(j.at(pkiDir, etcdPKI), 0o700); err != nil {
		return err
	}
	for _, public := range []bool{false, true} {
		for name, data := range j.shared {
			mode := fs.FileMode(0o600)
			if strings.HasSuffix(name, ".crt") || strings.HasSuffix(name, ".pub") || name == revokedFile || name == kubeletBundle {
				mode = 0o644
			}
			if public != (mode == 0o644) {
				continue
			}
			if _, err := writeFile(j.at(pkiDir, name), data, mode); err != nil {
				return err
			}
		}
	}
	return nil
}
