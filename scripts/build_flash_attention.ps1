<#
.SYNOPSIS
Detect, get and verify a FlashAttention library on Windows, in one command.

.DESCRIPTION
A thin caller of the flashdepot command line; build_flash_attn.cmd is the same for cmd. Needs Python 3.10 or newer and
Visual Studio 2019 or newer (its Build Tools suffice); an NVIDIA toolkit is used if there is one, and fetched if not.
Without flashdepot in that Python it is installed into .venv of this checkout.

Compilers take no blanks in the depot's folder: $env:FLASHDEPOT_HOME = 'C:\fd' chooses another.
Exit codes: 0 done, 2 wrong usage, 3 something is missing, 4 nothing compatible, 5 a compile failed, 6 damaged.

.PARAMETER Out
The library's folder; prebuilt in the current folder when it is not named.

.PARAMETER Help
Print this text.

.PARAMETER Options
Options of "flashdepot get".

.EXAMPLE
./build_flash_attention.ps1 --profile quick

.EXAMPLE
./build_flash_attention.ps1 -Out C:\libs\flashattention --profile inference --arch 89
#>
[CmdletBinding(PositionalBinding = $false)]
param(
    [string] $Out = (Join-Path (Get-Location) 'prebuilt'),
    [switch] $Help,
    [Parameter(ValueFromRemainingArguments = $true)] [string[]] $Options = @()
)

$checkout = Split-Path -Parent $PSScriptRoot
$environment = Join-Path $checkout '.venv'

function Stop-Script([int] $Status, [string] $Message, [string] $Mend) {
    [Console]::Error.WriteLine("error: $Message")
    if ($Mend) { [Console]::Error.WriteLine("  $Mend") }
    exit $Status
}

function Find-Python {
    $ours = Join-Path $environment 'Scripts\python.exe'
    if (Test-Path -LiteralPath $ours) { return $ours }
    $ask = 'import sys; sys.version_info >= (3, 10) and print(sys.executable)'
    $found = $null
    if (Get-Command py -ErrorAction SilentlyContinue) { $found = & py -3 -c $ask 2> $null }
    if (-not $found -and (Get-Command python -ErrorAction SilentlyContinue)) { $found = & python -c $ask 2> $null }
    if ($found) { return $found }
    Stop-Script 3 'no Python 3.10 or newer was found, neither by "py -3" nor by "python".' `
        'Install one: winget install Python.Python.3.12'
}

if ($Help -or $Options -contains '--help' -or $Options -contains '/?') {
    Get-Help $PSCommandPath -Detailed
    exit 0
}

$python = Find-Python
& $python -c 'import flashdepot' *> $null
if ($LASTEXITCODE -ne 0) {
    Write-Host "Installing flashdepot into $environment."
    & $python -m venv $environment
    if ($LASTEXITCODE -eq 0) {
        $python = Join-Path $environment 'Scripts\python.exe'
        & $python -m pip install --quiet --disable-pip-version-check $checkout
    }
    if ($LASTEXITCODE -ne 0) {
        Stop-Script 3 "flashdepot could not be installed from $checkout (exit code $LASTEXITCODE)." `
            "Install it yourself, and run this again: $python -m pip install '$checkout'"
    }
}

function Assert-Step {
    # The exit code is the step's own.
    if ($LASTEXITCODE -ne 0) { Stop-Script $LASTEXITCODE "the step above ended with exit code $LASTEXITCODE." }
}

Write-Host "`n[1/3] What is here, and what stands in the way"
& $python -m flashdepot doctor build
Assert-Step

Write-Host "`n[2/3] The library, from the depot or by compiling what is missing"
& $python -m flashdepot get --out $Out @Options
Assert-Step

Write-Host "`n[3/3] Whether it fits this machine"
& $python -m flashdepot check (Join-Path $Out 'lib\shared\flashattention.dll')
# 3: a fact is missing, such as the GPU of the machine that it is for. Nothing speaks against the library.
if ($LASTEXITCODE -ne 3) { Assert-Step }

Write-Host "`nThe library is in $Out."
exit 0
