package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// image is an image with one layer. Its archive is reproducible.
type image struct {
	name       string
	entrypoint []string
	command    []string
	entries    []entry
}

type entry struct {
	header tar.Header
	data   []byte
}

func (m *image) addFile(target, source string, mode int64) error {
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	m.add(tar.Header{Typeflag: tar.TypeReg, Name: target, Mode: mode}, data)
	return nil
}

func (m *image) addText(target, text string) {
	m.add(tar.Header{Typeflag: tar.TypeReg, Name: target, Mode: 0o644}, []byte(text))
}

func (m *image) addLink(target, to string) {
	m.add(tar.Header{Typeflag: tar.TypeSymlink, Name: target, Linkname: to, Mode: 0o777}, nil)
}

func (m *image) addDir(target string, mode int64) {
	m.add(tar.Header{Typeflag: tar.TypeDir, Name: target + "/", Mode: mode}, nil)
}

func (m *image) add(h tar.Header, data []byte) {
	if dir := path.Dir(strings.TrimSuffix(h.Name, "/")); dir != "/" && !slices.ContainsFunc(m.entries, func(e entry) bool { return e.header.Name == dir[1:]+"/" }) {
		m.addDir(dir, 0o755)
	}
	h.Name = strings.TrimPrefix(h.Name, "/")
	h.Size = int64(len(data))
	m.entries = append(m.entries, entry{h, data})
}

// write writes the archive: the layer, the image's configuration, and the
// manifest that refers to them. It does not touch a file with the same content.
// https://github.com/moby/docker-image-spec/blob/main/spec.md
func (m *image) write(file string) error {
	layer, err := archive(m.entries)
	if err != nil {
		return fmt.Errorf("layer of %s: %w", m.name, err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      "2000-01-01T00:00:00Z",
		"config": map[string]any{
			"Entrypoint": m.entrypoint,
			"Cmd":        m.command,
			"Env":        []string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"history": []any{map[string]any{"created": "2000-01-01T00:00:00Z", "created_by": "podium"}},
	})
	if err != nil {
		return err
	}
	configName, layerName := digest(config)+".json", digest(layer)+"/layer.tar"
	manifest, err := json.Marshal([]any{map[string]any{
		"Config": configName, "RepoTags": []string{m.name}, "Layers": []string{layerName},
	}})
	if err != nil {
		return err
	}
	whole, err := archive([]entry{
		{tar.Header{Typeflag: tar.TypeReg, Name: configName, Mode: 0o644, Size: int64(len(config))}, config},
		{tar.Header{Typeflag: tar.TypeReg, Name: layerName, Mode: 0o644, Size: int64(len(layer))}, layer},
		{tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json", Mode: 0o644, Size: int64(len(manifest))}, manifest},
	})
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, whole) {
		return nil // keeps the modification time, so that clusters do not import it again
	}
	return os.WriteFile(file, whole, 0o644)
}

func archive(entries []entry) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := w.WriteHeader(&e.header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
