// Command registry is the distribution project's image registry with one user,
// for tests that pull private images: plain HTTP, its images below a folder.
//
//	REGISTRY_PASSWORD=secret registry -address 127.0.0.1:5055 -dir /tmp/registry -user puller
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"golang.org/x/crypto/bcrypt"
)

func main() {
	address := flag.String("address", "127.0.0.1:5055", "address to listen on")
	dir := flag.String("dir", "", "folder of the images and of the password file")
	user := flag.String("user", "puller", "the only user; its password is in the environment: REGISTRY_PASSWORD")
	flag.Parse()
	if err := run(context.Background(), *address, *dir, *user, os.Getenv("REGISTRY_PASSWORD")); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

// run serves until it is told to stop by SIGTERM.
func run(ctx context.Context, address, dir, user, password string) error {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		return fmt.Errorf("hash the password: %w", err)
	}
	passwords := filepath.Join(dir, "htpasswd")
	if err := os.WriteFile(passwords, []byte(user+":"+string(hash)+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the password file: %w", err)
	}
	config := &configuration.Configuration{
		Version: configuration.MajorMinorVersion(0, 1),
		Storage: configuration.Storage{"filesystem": {"rootdirectory": filepath.Join(dir, "images")}},
		Auth:    configuration.Auth{"htpasswd": {"realm": "registry", "path": passwords}},
	}
	config.HTTP.Addr = address
	config.Log.Level = "warn"
	config.Log.AccessLog.Disabled = true
	r, err := registry.NewRegistry(ctx, config)
	if err != nil {
		return err
	}
	return r.ListenAndServe()
}
