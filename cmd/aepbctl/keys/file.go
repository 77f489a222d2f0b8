package keys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
)

// fileMode: only the owner of the file, who should be the user that the gateway runs as, reads it.
const fileMode fs.FileMode = 0o600

// alone does work on a file that no other command changes meanwhile. The target is the file behind symbolic links.
func alone(file string, work func(target string) error) error {
	target, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		target, err = file, nil
	}
	if err != nil {
		return err
	}
	lock := target + ".lock"
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("another command changes the keys now: if none does, remove %s", terminal.Word(lock))
	}
	if err != nil {
		return err
	}
	err = f.Close()
	if err == nil {
		err = work(target)
	}
	return errors.Join(err, os.Remove(lock))
}

// replace puts a whole file in place of the former one: a reader sees the old or the new one.
func replace(file string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(fileMode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
