// Protogen generates Go code from a .proto file. It uses the generators in go.mod
// and a compiler written in Go, so nothing else has to be installed:
//
//	go run . FOLDER FILE.proto
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: protogen FOLDER FILE.proto")
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func generate(folder, name string) error {
	request, err := compile(folder, name)
	if err != nil {
		return err
	}
	for _, generator := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(generator, request, folder); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

func compile(folder, name string) ([]byte, error) {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{folder}},
		SourceInfoMode: protocompile.SourceInfoStandard, // keeps the comments of the .proto file
	}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
	})
}

func run(generator string, request []byte, folder string) error {
	command := exec.Command("go", "tool", generator)
	command.Stdin, command.Stderr = bytes.NewReader(request), os.Stderr
	out, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", *response.Error)
	}
	for _, file := range response.File {
		if err := os.WriteFile(filepath.Join(folder, file.GetName()), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
