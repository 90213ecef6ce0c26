# libflashattention for Nix: nix build ./examples/nix
# Nothing is fetched while it builds: the source of FlashAttention is an input, nvcc and g++ are those of nixpkgs.
{
  description = "FlashAttention's CUDA kernels behind a C ABI, without torch and Python";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";
  inputs.flashdepot = {
    url = "path:../..";
    flake = false;
  };

  outputs = { self, nixpkgs, flashdepot }:
    let
      system = "x86_64-linux";
      pkgs = import nixpkgs { inherit system; config.allowUnfree = true; };
      cuda = pkgs.cudaPackages_13;
      python = pkgs.python3.withPackages (packages: with packages; [
        click filelock google-re2 msgspec packaging platformdirs psutil pypi-simple requests rich securesystemslib
        tomli-w tomlkit urllib3
      ]);
      toolkit = pkgs.symlinkJoin {
        name = "cuda-for-flashattention";
        paths = [ cuda.cuda_nvcc cuda.cuda_cudart cuda.cuda_cccl ];
      };
      library = { profile ? "inference", arch ? "80,86,89,90,100,120" }: pkgs.stdenv.mkDerivation (final: {
        pname = "libflashattention";
        version = "2.8.3.post2";
        src = pkgs.fetchPypi {
          pname = "flash_attn";
          inherit (final) version;
          hash = "sha256-0PnwsIqYbN6tv/z17Is6j1FDZsaK0YU9OrBhvIPMNAs=";
        };
        nativeBuildInputs = [ python ];
        buildPhase = ''
          export HOME=$PWD/home FLASHDEPOT_HOME=$PWD/depot FLASHDEPOT_UNCONFINED=1 PYTHONPATH=${flashdepot}/src
          python -m flashdepot build --offline --yes --upstream . --cuda ${toolkit} --families fa2 \
            --profile ${profile} --arch ${arch} --jobs $NIX_BUILD_CORES --out library
        '';
        installPhase = ''
          mkdir -p $out && cp -a library/. $out/
        '';
      });
    in {
      lib.library = library;
      packages.${system}.default = library { };
    };
}
