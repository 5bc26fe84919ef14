// Command images builds the container images that clusters, tests and examples
// use, without a registry or a container engine. Each image is one layer of
// static binaries, in an archive that `ctr images import` and `docker load`
// read.
//
//	go run ./hack/images -out _images [-busybox /bin/busybox]
//	go run ./hack/images -out FOLDER NAME PATH=FILE
//
// The second form builds one image, of a static program that is in FILE.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("out", "_images", "folder the archives are written to")
	busybox := flag.String("busybox", "/bin/busybox", "static busybox (Debian's busybox-static)")
	flag.Parse()
	build := func() error { return run(*out, *busybox) }
	if flag.NArg() == 2 {
		build = func() error { return programImage(*out, flag.Arg(0), flag.Arg(1)) }
	}
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(out, busybox string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "podium-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	for _, source := range []string{"./deploy/images/pause", "./deploy/images/web", "./deploy/images/conformance", "./cmd/cluster-dns", "./cmd/metrics-server"} {
		name := filepath.Base(source)
		binary := filepath.Join(work, name)
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
		img := image{name: "localhost/podium/" + name + ":v1", entrypoint: []string{"/" + name}}
		mode := int64(0o755)
		if name == "conformance" { // setuid root, and with a default command
			img.entrypoint, img.command, mode = append(img.entrypoint, "print"), []string{"default"}, 0o4755
		}
		if err := img.addFile("/"+name, binary, mode); err != nil {
			return err
		}
		if err := img.write(filepath.Join(out, name+".tar")); err != nil {
			return err
		}
	}
	return busyboxImage(out, busybox)
}

// programImage builds an image of one program, which is PATH=FILE.
func programImage(out, name, program string) error {
	path, file, ok := strings.Cut(program, "=")
	if !ok {
		return fmt.Errorf("%s is not PATH=FILE", program)
	}
	img := image{name: "localhost/podium/" + name + ":v1", entrypoint: []string{path}}
	if err := img.addFile(path, file, 0o755); err != nil {
		return err
	}
	img.addDir("/tmp", 0o1777)
	return img.write(filepath.Join(out, name+".tar"))
}

// busyboxImage builds an image with busybox and a link for each of its applets.
func busyboxImage(out, busybox string) error {
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("ask %s for its applets (Debian: apt-get install busybox-static): %w", busybox, err)
	}
	img := image{name: "localhost/podium/busybox:v1", command: []string{"sh"}}
	if err := img.addFile("/bin/busybox", busybox, 0o755); err != nil {
		return err
	}
	for _, applet := range strings.Fields(string(list)) {
		if applet != "busybox" {
			img.addLink("/bin/"+applet, "busybox")
		}
	}
	img.addDir("/tmp", 0o1777)
	img.addText("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
	img.addText("/etc/group", "root:x:0:\nnogroup:x:65534:\n")
	return img.write(filepath.Join(out, "busybox.tar"))
}
