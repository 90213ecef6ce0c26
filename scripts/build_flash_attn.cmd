@echo off
rem Detect, get and verify a FlashAttention library on Windows, in one command. "-Help" says how.
rem A thin caller of the flashdepot command line; build_flash_attention.ps1 is the same for PowerShell.
setlocal EnableExtensions DisableDelayedExpansion

set "OUT=%CD%\prebuilt"
set "ARGS="
if "%~1"=="" goto find_python
rem Not in the list: there, a question mark stands for any file name.
if "%~1"=="/?" goto help
for %%H in (-Help --help -h /h /help) do if /i "%~1"=="%%H" goto help
if /i not "%~1"=="-Out" goto arguments
if "%~2"=="" goto no_folder
set "OUT=%~f2"
shift
shift
:arguments
if "%~1"=="" goto find_python
set ARGS=%ARGS% %1
shift
goto arguments

:find_python
set "CHECKOUT=%~dp0.."
set "VENV=%CHECKOUT%\.venv"
set "PYTHON=%VENV%\Scripts\python.exe"
if exist "%PYTHON%" goto find_flashdepot
rem The interpreter itself and not what starts it: a shim that is a batch file would not come back here.
set "PYTHON="
set ASK="import sys; sys.version_info >= (3, 10) and print(sys.executable)"
for /f "delims=" %%P in ('py -3 -c %ASK% 2^>nul') do set "PYTHON=%%P"
if defined PYTHON goto find_flashdepot
for /f "delims=" %%P in ('python -c %ASK% 2^>nul') do set "PYTHON=%%P"
if defined PYTHON goto find_flashdepot
echo error: no Python 3.10 or newer was found, neither by "py -3" nor by "python".>&2
echo   Install one: winget install Python.Python.3.12>&2
exit /b 3

:find_flashdepot
"%PYTHON%" -c "import flashdepot" >nul 2>nul
if not errorlevel 1 goto detect
echo Installing flashdepot into "%VENV%".
"%PYTHON%" -m venv "%VENV%"
if errorlevel 1 goto no_install
set "PYTHON=%VENV%\Scripts\python.exe"
"%PYTHON%" -m pip install --quiet --disable-pip-version-check "%CHECKOUT%"
if errorlevel 1 goto no_install

:detect
echo.
echo [1/3] What is here, and what stands in the way
"%PYTHON%" -m flashdepot doctor build
if errorlevel 1 goto failed

echo.
echo [2/3] The library, from the depot or by compiling what is missing
"%PYTHON%" -m flashdepot get --out "%OUT%"%ARGS%
if errorlevel 1 goto failed

echo.
echo [3/3] Whether it fits this machine
"%PYTHON%" -m flashdepot check "%OUT%\lib\shared\flashattention.dll"
rem 3: a fact is missing, such as the GPU of the machine that it is for. Nothing speaks against the library.
if errorlevel 4 goto failed
if not errorlevel 3 if errorlevel 1 goto failed

echo.
echo The library is in "%OUT%".
exit /b 0

:failed
rem The exit code is the step's own: 3 something is missing, 4 nothing compatible, 5 a compile failed, 6 damaged.
set "STATUS=%ERRORLEVEL%"
echo error: the step above ended with exit code %STATUS%.>&2
exit /b %STATUS%

:no_install
set "STATUS=%ERRORLEVEL%"
echo error: flashdepot could not be installed from "%CHECKOUT%" (exit code %STATUS%).>&2
echo   Install it yourself, and run this again: "%PYTHON%" -m pip install "%CHECKOUT%">&2
exit /b 3

:no_folder
echo error: -Out needs the name of a folder.>&2
exit /b 2

:help
echo Detect, get and verify a FlashAttention library, in one command.
echo.
echo   build_flash_attn.cmd [-Out DIR] [options of "flashdepot get"]
echo.
echo   build_flash_attn.cmd --profile quick
echo   build_flash_attn.cmd -Out C:\libs\flashattention --profile inference --arch 89
echo.
echo The library goes into DIR, or into prebuilt in the current folder. Needs Python 3.10 or newer and Visual
echo Studio 2019 or newer (its Build Tools suffice); an NVIDIA toolkit is used if there is one, and fetched if not.
echo Without flashdepot in that Python it is installed into .venv of this checkout.
echo.
echo Compilers take no blanks in the depot's folder: set FLASHDEPOT_HOME=C:\fd chooses another.
echo Exit codes: 0 done, 2 wrong usage, 3 something is missing, 4 nothing compatible, 5 a compile failed, 6 damaged.
exit /b 0
