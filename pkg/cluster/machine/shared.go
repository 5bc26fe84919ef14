package machine

import (
	"context"
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
	"podium/pkg/cluster/files"
	"podium/pkg/cluster/machine/join"
)

// certsSecret is the Secret with the files that all control planes share. They
// are encrypted with a key that is printed but never stored. Its owner is the
// bootstrap token, so that it is garbage-collected when the token expires.
const certsSecret = "podium-certs"

// certsTTL is how long a control plane can join with the uploaded files.
const certsTTL = 2 * time.Hour

// shared are the files, below pkiDir, that all control planes share.
var shared = []string{"ca.crt", "ca.key", revokedFile, kubeletCA + ".crt", kubeletCA + ".key", kubeletBundle, "etcd/ca.crt", "etcd/ca.key", "sa.key", "sa.pub", encryptionFile}

// sharedFiles returns the files that the control planes of this cluster share.
func (c *Config) sharedFiles() []string {
	if c.Cloud == "" {
		return shared
	}
	return append(slices.Clone(shared), cloudFile)
}

// sharedKey returns a file's key in the Secret, which must not contain slashes.
func sharedKey(name string) string { return strings.ReplaceAll(name, "/", "-") }

// UploadCertificates stores this control plane's shared files, encrypted, in
// the cluster for two hours and prints the command with which another control
// plane joins. The command contains the key.
func UploadCertificates(ctx context.Context, cfg Config, host Host) error {
	m, err := loadMachine(cfg, host)
	if err != nil {
		return err
	}
	command, err := m.uploadCertificates(ctx)
	if err == nil {
		fmt.Fprintln(cfg.Out, command)
	}
	return err
}

// uploadCertificates is UploadCertificates, but returns the command. Every call
// makes a new key, which replaces the previous one.
func (m *machine) uploadCertificates(ctx context.Context) (command string, err error) {
	cl, err := m.admin()
	if err != nil {
		return "", err
	}
	key, err := join.NewKey()
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
	return piped(join+" --control-plane --certificate-key-file -", spec.Token.String(), key.Text()), nil
}

// sealed reads the shared files and encrypts them with key.
func (m *machine) sealed(key join.Key) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range m.sharedFiles() {
		data, err := os.ReadFile(m.at(pkiDir, name))
		if err != nil {
			return nil, fmt.Errorf("read what control planes share (this is done on a control plane's machine): %w", err)
		}
		if out[sharedKey(name)], err = key.Seal(name, data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fetchShared reads the shared files with the token and decrypts them. It does
// not read them again if an earlier run has written them: the Secret may have
// been deleted since.
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
		if files[name], err = j.key.Open(name, secret.Data[sharedKey(name)]); err != nil {
			return err
		}
	}
	if string(files["ca.crt"]) != string(j.found.CA) {
		return errors.New("the uploaded keys are those of another authority than the cluster's: podium certs upload on a control plane's machine, then again")
	}
	j.shared = files
	return nil
}

// hasShared reports whether all shared files exist on this machine.
func (j *joining) hasShared() bool {
	for _, name := range j.sharedFiles() {
		if _, err := os.Stat(j.at(pkiDir, name)); err != nil {
			return false
		}
	}
	return true
}

// writeShared writes the shared files, certificates last: an interrupted run
// leaves keys without certificates, which later runs do not take for a CA.
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
			if _, err := files.Write(j.at(pkiDir, name), data, mode); err != nil {
				return err
			}
		}
	}
	return nil
}
